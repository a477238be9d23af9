"""What happens between two optimizer steps: an evaluation, answers, a checkpoint, the end."""

import time
from typing import Any

from transformers import TrainerCallback

from tunery.ml.cadence import is_due
from tunery.ml.samples import tell_samples
from tunery.ml.saving import Saver
from tunery.ml.training_run import TrainingRun


class Boundary(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """Decides after each optimizer step whether to evaluate, save or stop."""

    def __init__(self, run: TrainingRun, saver: Saver) -> None:
        self.run, self.saver = run, saver

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.run.step_began_s = time.monotonic()
        self.run.micro_batches_s.clear()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluate, answer prompts and save when due, stop when asked to.

        Raises what the last checkpoint failed with, if it did.
        """
        self.saver.check()
        run, step = self.run, state.global_step
        run.step_s = time.monotonic() - run.step_began_s
        stop = run.must_stop()
        last = step >= run.plan.total_steps
        epoch_ends = step % run.plan.steps_per_epoch == 0
        every = run.hyper.eval_every_steps
        evaluates = epoch_ends or last or (every > 0 and step % every == 0)
        control.should_evaluate = run.valid is not None and evaluates
        sampled = run.hyper.sample_every_steps
        tells = run.ranks.is_first and run.spec.prompts and sampled
        if tells and step % sampled == 0 and not stop:
            tell_samples(run, kwargs["model"], kwargs["processing_class"], step)
        due = is_due(
            step,
            unsaved_s=time.monotonic() - run.saved_at_s,
            cost_s=run.save_s,
            every_steps=run.spec.checkpoint_every_steps,
            every_s=run.spec.checkpoint_every_ms / 1000,
            share_max=run.spec.checkpoint_share,
        )
        # each rank has a clock of its own, and the first one needs what all have
        due = run.ranks.any(due and run.ranks.is_first)
        at_end_of_epoch = epoch_ends and run.spec.checkpoint_each_epoch
        control.should_save = stop or last or at_end_of_epoch or due
        control.should_training_stop = control.should_training_stop or stop
