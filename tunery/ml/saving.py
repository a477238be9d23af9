"""Writes the checkpoints of one attempt, and restores the state that one holds."""

import time
from pathlib import Path
from typing import Any, Final

from transformers import TrainerState

from tunery.ml import checkpoints, state
from tunery.ml.divergence import LossWindow
from tunery.ml.evaluations import Evaluations
from tunery.ml.training_run import TrainingRun
from tunery.work.events import Checkpointed

TRAINER_STATE: Final = "trainer_state.json"


class Saver:
    """Checkpoints of one attempt; what they hold of the run is in `run`."""

    def __init__(self, run: TrainingRun, adamw: state.AdapterAdamW) -> None:
        self.run, self.adamw = run, adamw

    def save(self, model: Any, scheduler: Any, position: TrainerState) -> None:
        """Write a checkpoint of the state after a step, delete the oldest, emit the event."""
        run, step = self.run, position.global_step
        captured_ms, captured_s = run.events.elapsed_ms(), time.monotonic()
        tokens = run.plan.tokens_after(step)
        out_dir = Path(run.spec.out_dir)
        run.saved = checkpoints.write(
            out_dir,
            lambda directory: self._fill(directory, model, scheduler, position),
            step=step,
            tokens=tokens,
            run=run.fingerprint,
            environment=run.environment,
        )
        checkpoints.keep_newest(out_dir, run.spec.keep_checkpoints)
        run.saved_at_s = time.monotonic()
        run.save_s = run.saved_at_s - captured_s
        run.events.emit(
            Checkpointed(
                step=step,
                epoch=round(step / run.plan.steps_per_epoch, 6),
                dir=run.saved.dir,
                manifest_sha256=run.saved.manifest_sha256,
                tokens=tokens,
                files=run.saved.files,
                captured_elapsed_ms=captured_ms,
                captured_monotonic_ms=int(1000 * captured_s),
                write_ms=int(1000 * run.save_s),
            )
        )

    def load(self, directory: Path, model: Any) -> None:
        """Restore the adapter, and what the run knows of its losses and evaluations."""
        state.load_adapter(directory, model)
        progress = state.load_progress(directory)
        self.run.window = LossWindow(tuple(progress["losses"]), progress["spikes"])
        self.run.loss = progress["loss"]
        self.run.evaluations = Evaluations(*progress.get("evaluations", ()))
        self.run.best = state.load_best(directory)

    def _fill(self, directory: Path, model: Any, scheduler: Any, position: TrainerState) -> None:
        state.save(
            directory,
            model=model,
            base_id=self.run.spec.base_id,
            optimizer=self.adamw,
            scheduler=scheduler,
            progress=self._progress(position.global_step),
            best=self.run.best,
        )
        kept = TrainerState(
            epoch=position.epoch,
            global_step=position.global_step,
            max_steps=position.max_steps,
            num_train_epochs=position.num_train_epochs,
            train_batch_size=position.train_batch_size,
            logging_steps=position.logging_steps,
        )
        kept.save_to_json(str(directory / TRAINER_STATE))

    def _progress(self, step: int) -> dict[str, Any]:
        run = self.run
        progress: dict[str, Any] = {
            "step": step,
            "epoch": step // run.plan.steps_per_epoch,
            "step_in_epoch": step % run.plan.steps_per_epoch,
            "tokens": run.plan.tokens_after(step),
            "losses": list(run.window.losses),
            "spikes": run.window.spikes,
            "loss": run.loss,
        }
        evaluations = run.evaluations
        if evaluations.loss is not None:
            progress["evaluations"] = [evaluations.loss, evaluations.step, evaluations.worse]
        return progress
