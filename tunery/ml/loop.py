"""The training loop of one attempt, whatever is learnt and whichever engine takes the steps.

A step: compute this rank's micro-batches of it, add up the gradients, clip them, take the
optimizer's step. Between two steps: say what happened, evaluate, answer prompts, save, stop.
"""

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, assert_never

import torch
from torch import Tensor
from transformers import set_seed
from transformers.integrations.neftune import activate_neftune

from schemas.units import Ms
from tunery.ml import generation, state
from tunery.ml.attention import causal_of, check_divisible
from tunery.ml.context import sharing
from tunery.ml.device import peak_memory_bytes, settle
from tunery.ml.engines import TrainingEngine
from tunery.ml.kernels import kernels_of
from tunery.ml.loss import pass_together, use_fused_head
from tunery.ml.methods import objective_of
from tunery.ml.objectives import mean_scores
from tunery.ml.reference import Stopped, compute_references
from tunery.ml.reinforcement import STEP, Reinforcement
from tunery.ml.routers import RouterLoss
from tunery.ml.saving import Saver
from tunery.ml.suspects import Suspect, highest_losses, quoted
from tunery.ml.training_run import TrainingRun
from tunery.work.divergence import check_finite
from tunery.work.events import Evaluated, LossSpiked, Noted, Sampled, StepCompleted
from tunery.work.exits import WorkError
from tunery.work.spec import Scheduler


def is_due(
    step: int,
    *,
    unsaved_s: float,
    cost_s: float,
    every_steps: int,
    every_s: float,
    share_max: float,
) -> bool:
    """Return whether a checkpoint is written after this step.

    One is due every `every_steps` steps, unless it would take more than `share_max` of the time,
    and after `every_s` at the latest, at any cost.

    unsaved_s: time since the last one was written, or since the attempt began
    cost_s: time that the last one paused the training; 0: there is none yet
    share_max: bound of `cost_s` as a share of `unsaved_s` and `cost_s` together; 0: no bound
    """
    if unsaved_s >= every_s:
        return True
    is_affordable = not share_max or cost_s <= share_max * (unsaved_s + cost_s)
    return step % every_steps == 0 and is_affordable


# Answers to the user's prompts while a model is trained.

TOKENS_MAX: Final = 40


def emit_samples(run: TrainingRun, model: Any, tokenizer: Any, step: int) -> None:
    """Emit the model's answers to the prompts after a step, without an effect on the training."""
    training = model.training
    model.eval()
    with torch.random.fork_rng():
        texts = generation.answers(
            model,
            tokenizer,
            [generation.render(tokenizer, prompt) for prompt in run.spec.prompts],
            new_tokens_max=TOKENS_MAX,
        )
    model.train(training)
    for prompt, text in zip(run.spec.prompts, texts, strict=True):
        run.events.emit(Sampled(step=step, prompt=prompt, answer=text))


# The learning rate of every optimizer step, as a share of the highest.

WSD_DECAY: Final = 0.1  # of all steps (MiniCPM, arXiv 2404.06395)


def rate_factor(scheduler: Scheduler, step: int, *, warmup: int, total: int) -> float:
    """Share of the highest rate for the step after `step` steps are done, above 0 up to 1.

    `warmup` steps climb in equal parts, so that none is spent at a rate of zero; then the schedule
    runs down over the rest of the `total` steps and would be at 0 in the step after the last.
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    done = (step - warmup) / max(1, total - warmup)
    match scheduler:
        case "constant":
            return 1.0
        case "linear":
            return max(0.0, 1.0 - done)
        case "cosine":
            return max(0.0, 0.5 * (1.0 + math.cos(math.pi * done)))
        case "wsd":
            return min(1.0, (total - step) / max(1, round(WSD_DECAY * total)))
        case _:
            assert_never(scheduler)


VALID_ROWS_MAX: Final = 32  # of the validation split, at each evaluation
ACCURACY: Final = "mean_token_accuracy"
OF_PAIRS: Final = ("reward_accuracy", "reward_margin", "reward_chosen", "reward_rejected")
OF_ANSWERS: Final = ("reward", "reward_std", "completion_tokens")
FIGURES: Final = (ACCURACY, *OF_PAIRS, *OF_ANSWERS)  # of a step, each a mean over micro-batches


class TrainingLoop:
    """The loop of one attempt; its own state is in `run`."""

    def __init__(
        self, run: TrainingRun, engine: TrainingEngine, tokenizer: Any, device: torch.device
    ) -> None:
        self.run, self.engine, self.tokenizer, self.device = run, engine, tokenizer, device
        self.model = engine.model
        self.saver = Saver(run, engine)
        self.step = 0  # that were done
        self.objective = objective_of(
            run.hyper,
            run.rows,
            packing=run.hyper.packing,
            grader=run.spec.grader,
            tokenizer=tokenizer,
            scores=run.scores,
        )
        if self.objective.needs_reference:  # for the trial step, until they are computed
            run.rows = run.rows.with_reference(torch.zeros(run.rows.n_references))
        if run.spec.engine.is_sharded and run.ranks.count > 1:
            pass_together(self.model, run.ranks.most)
        if run.ranks.row is not None:
            check_divisible(self.model)
        if kernels_of(device).fused_head:
            use_fused_head(self.model)
        self._routers = RouterLoss.of(self.model, run.hyper)
        if run.hyper.recompute:
            self.model.activation_checkpointing_enable(
                activation_checkpointing_kwargs={"use_reentrant": False}
            )
        if run.hyper.neftune:
            activate_neftune(self.model, run.hyper.neftune)
        self._rates = [group["lr"] for group in engine.optimizer.param_groups]
        self._figures: dict[str, list[Tensor]] = defaultdict(list)
        set_seed(run.hyper.seed)

    def try_longest_rows(self) -> None:
        """One step on the micro-batch that needs most memory, undone, before anything is billed.

        Raises what running out of memory raises.
        """
        rows = self.run.rows
        batch = self._on_device(rows.batch(rows.longest(self.run.hyper.batch_size)))
        with self.trying():
            self.model.train()
            self.engine.backward(self.loss(batch, None), is_last=True)
            self.engine.rehearse()
        if self.run.scores is not None:
            self.run.scores.forget()

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Its block computes what is no part of the training, from its beginning."""
        run = self.run
        run.is_trying = True
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            yield
        self._figures.clear()
        self.step, run.loss, run.step_s, run.is_trying = 0, None, 0.0, False

    def train_to_end(self, checkpoint: Path | None) -> int:
        """Train from a checkpoint, or from the beginning; the step that it came to."""
        run = self.run
        if checkpoint is not None:
            self.step = int(state.load_progress(checkpoint)["step"])
        if self.objective.needs_reference:  # before the weights are those of the checkpoint
            try:
                compute_references(
                    run, self.model, self.device, self.step, together=self.engine.passes_together
                )
            except Stopped:
                return self.step
        if checkpoint is not None:
            self.saver.load(checkpoint)
            if run.has_stopped_early:  # its attempt ended before the adapter was written
                return self.step
            state.load_rng(checkpoint)
        with self.saver:
            self.saver.prepare()
            while self.step < run.plan.total_steps:
                self.take_step()
                if self._between_steps():
                    break
        return self.step

    def take_step(self, micro_batches: int | None = None) -> None:
        """One optimizer step: `run.loss` and the event say how it went.

        micro_batches: largest number of micro-batches; None: all of the step
        """
        run, engine, hyper, ranks = self.run, self.engine, self.run.hyper, self.run.ranks
        began_s = time.monotonic()
        if self.step % run.plan.steps_per_epoch == 0:
            # A DataLoader draws the seed of its workers here. So did this loop when it used one,
            # and runs keep their random numbers.
            torch.empty((), dtype=torch.int64).random_()
        rate = rate_factor(
            hyper.scheduler,
            self.step,
            warmup=round(hyper.warmup * run.plan.total_steps),
            total=run.plan.total_steps,
        )
        for group, whole in zip(engine.optimizer.param_groups, self._rates, strict=True):
            group["lr"] = whole * rate

        # 1. The micro-batches of the step, all of them: each divides by the items of the whole.
        rows, width = run.rows_of_step(self.step + 1), hyper.batch_size
        starts = range(0, len(rows), width)[:micro_batches]
        batches = [run.rows.batch(rows[at : at + width]) for at in starts]
        items = sum(map(self.objective.count, batches))
        own = [number for number in range(len(batches)) if ranks.takes(number)]
        rounds = math.ceil(len(batches) / ranks.groups)
        total = torch.zeros((), device=self.device)
        for number in own:
            run.at(self.step + 1, "computing", number)
            ranks.seed(hyper.seed, self.step + 1, number)
            self.model.train()
            loss = self.loss(self._on_device(batches[number]), items, 1 / len(batches))
            is_last = number == own[-1] and (len(own) == rounds or not engine.passes_together)
            engine.backward(loss, is_last=is_last)
            total += loss.detach()
        if engine.passes_together and len(own) < rounds:
            # The others have a micro-batch more, and pass weights on: compute one for nothing.
            self.model.train()
            loss = self.loss(self._on_device(batches[-1]), items, is_counted=False)
            engine.backward(0.0 * loss, is_last=True)
        settle()
        run.at(self.step + 1, "adding up gradients")
        computed_ms = 1_000 * (time.monotonic() - began_s) / max(1, len(own))

        # 2. The loss of the step over all ranks, and the step itself.
        values = {name: [float(each) for each in self._figures.pop(name, [])] for name in FIGURES}
        self._figures.clear()
        sums_here = [figure for each in values.values() for figure in (sum(each), len(each))]
        of_ranks = ranks.each([float(total), computed_ms, *sums_here])
        of_groups = of_ranks[:: ranks.tensor_parallel]
        run.loss, _, *sums = (sum(each) for each in zip(*of_groups, strict=True))
        self._check_finite(run.loss, "the loss")
        norm = float(engine.clip(hyper.grad_norm_max or math.inf))
        self._check_finite(norm, "the gradient norm")
        engine.step()
        self.step += 1
        run.step_s = time.monotonic() - began_s
        self._figures_of_step = {
            name: sums[2 * at] / sums[2 * at + 1]
            for at, name in enumerate(FIGURES)
            if sums[2 * at + 1]
        }
        self._norm = norm
        self._rank_ms: tuple[Ms, ...] = (
            tuple(math.ceil(each[1]) for each in of_ranks) if ranks.count > 1 else ()
        )

    def loss(
        self,
        batch: dict[str, Tensor],
        items: int | None,
        share: float = 1.0,
        *,
        is_counted: bool = True,
    ) -> Tensor:
        """Return what a micro-batch adds to the mean loss over the items of a step, with gradients.

        items: number of items in the whole step; None: the step has this batch alone
        share: of the micro-batches of the step that this one is; the loss of routers has no items
        is_counted: whether its figures count as those of the step
        """
        if isinstance(self.objective, Reinforcement):
            batch = batch | {STEP: torch.tensor(self.step)}
        row = self.run.ranks.row
        with (
            nullcontext(batch)
            if row is None
            else sharing(causal_of(self.model), batch, row) as own,
            nullcontext() if self._routers is None else self._routers.collecting(),
        ):
            scored = self.objective.score(self.model, own)
        if is_counted:
            for name, values in scored.figures.items():
                if len(values):
                    self._figures[name].append(values.float().mean())
        loss = scored.losses.sum() / max(1, len(scored.losses) if items is None else items)
        return loss if self._routers is None else loss + share * self._routers.take()

    def _on_device(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: value.to(self.device) for name, value in batch.items()}

    # --- between two steps
    def _between_steps(self) -> bool:
        """Say what happened, evaluate, answer prompts and save where they are due; whether the
        training ends.

        Raises what writing the last checkpoint failed with, if it did.
        """
        self.saver.check()
        run, step, ranks = self.run, self.step, self.run.ranks
        stops = run.must_stop()
        is_last = step >= run.plan.total_steps
        epoch_ends = step % run.plan.steps_per_epoch == 0
        every = run.hyper.sample_every_steps
        answers = run.spec.prompts and every and step % every == 0 and not stops
        if answers and (ranks.is_first or self.engine.passes_together):
            emit_samples(run, self.model, self.tokenizer, step)
        due = is_due(
            step,
            unsaved_s=time.monotonic() - run.saved_at_s,
            cost_s=run.save_s,
            every_steps=run.spec.checkpoint_every_steps,
            every_s=run.spec.checkpoint_every_ms / 1000,
            share_max=run.spec.checkpoint_share,
        )
        # each rank has its own clock, and the first one needs what all have
        due = ranks.any(due and ranks.is_first)
        due = due or stops or is_last or (epoch_ends and run.spec.checkpoint_each_epoch)
        self._emit_step()
        every = run.hyper.eval_every_steps
        if run.valid is not None and (epoch_ends or is_last or (every and step % every == 0)):
            run.at(step, "evaluating")
            ends_early = self._evaluate()
            due, stops = due or ends_early, stops or ends_early
        if due:
            run.at(step, "saving")
            self.saver.save(step)
        return stops

    def _emit_step(self) -> None:
        """Emit the step, and a spike when the loss has stayed high."""
        run, step, figures = self.run, self.step, self._figures_of_step
        assert run.loss is not None, "after a step"  # noqa: S101  # the caller has taken one
        run.window = run.window.add(run.loss)
        run.events.emit(
            StepCompleted(
                step=step,
                total_steps=run.plan.total_steps,
                epoch=round(step / run.plan.steps_per_epoch, 6),
                loss=run.loss,
                grad_norm=self._norm,
                learning_rate=self.engine.optimizer.param_groups[0]["lr"],
                tokens=run.plan.tokens_after(step),
                tokens_total=run.plan.tokens_total,
                tokens_per_s=run.plan.tokens_of(step) / run.step_s if run.step_s else None,
                memory_bytes=peak_memory_bytes(self.device),
                rank_ms=self._rank_ms,
                mean_token_accuracy=figures.get(ACCURACY),
                reward_accuracy=figures.get("reward_accuracy"),
                reward_margin=figures.get("reward_margin"),
                reward_chosen=figures.get("reward_chosen"),
                reward_rejected=figures.get("reward_rejected"),
                reward=figures.get("reward"),
                reward_std=figures.get("reward_std"),
                completion_tokens=figures.get("completion_tokens"),
            )
        )
        self._judge_learning(figures.get("reward_std"))
        # a loss that says how the answers to a prompt differ is around 0, and has no usual value
        if run.window.spiking and not isinstance(self.objective, Reinforcement):
            numbers = run.rows_of_step(step)
            worst = highest_losses(self.objective, self.model, run.rows, numbers, self.device)
            text = (
                "the loss rose far above its usual values and stayed there; highest in "
                f"{', '.join(suspect.label for suspect in worst)} of the packed rows"
            )
            run.events.emit(LossSpiked(step=step, loss=run.loss, message=text))

    def _judge_learning(self, reward_std: float | None) -> None:
        """Raises WorkError("nothing_learnt") where the tenant wants it to end then."""
        run, step = self.run, self.step
        if not run.hyper.stop_if_nothing_learnt or run.loss is None:
            return
        total = run.plan.total_steps
        run.learning = run.learning.add(total, run.loss, reward_std)
        if not run.learning.shows_nothing(total):
            return
        shown = (
            f"the rewards of all answers were equal in {run.learning.equal} steps in a row"
            if run.learning.equal
            else f"the loss has not fallen in {run.learning.steps} steps"
        )
        raise WorkError(
            "nothing_learnt",
            f"nothing is learnt: {shown} (step {step} of {total})",
            "Look at the grader and at the rows, or raise the learning rate.",
        )

    def _evaluate(self) -> bool:
        """Emit the loss on the sample of the validation split; whether the training ends by it."""
        run, step = self.run, self.step
        assert run.valid is not None, "there are rows"  # noqa: S101  # the caller has looked
        means = mean_scores(
            self.objective, self.model, run.valid, rows_max=VALID_ROWS_MAX, device=self.device
        )
        loss = means.loss
        if loss is not None:
            loss = run.ranks.of_first(loss)  # all ranks must conclude the same of it
            self._check_finite(loss, "the loss on validation rows", step)
        run.events.emit(
            Evaluated(
                step=step,
                valid_loss=loss,
                valid_accuracy=means.figures.get(ACCURACY),
                valid_reward_accuracy=means.figures.get("reward_accuracy"),
            )
        )
        if loss is None:
            return False
        run.evaluations = run.evaluations.add(step, loss)
        if run.evaluations.step == step and run.hyper.best_checkpoint:
            tensors = self.engine.trained()
            run.best = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
        if not run.has_stopped_early or step >= run.plan.total_steps:
            return False
        text = (
            f"the training ends early: its validation loss has not been below that of step "
            f"{run.evaluations.step} ({run.evaluations.loss:.4f}) in {run.evaluations.worse} "
            "evaluations"
        )
        run.events.emit(Noted(step=step, message=text))
        return True

    def _check_finite(self, value: float, what: str, step: int | None = None) -> None:
        """`step`: after which it was computed; None: in the one that is not finished."""
        check_finite(
            value,
            what=what,
            step=self.step + 1 if step is None else step,
            learning_rate=self.engine.optimizer.param_groups[0]["lr"],
            suspects=lambda: quoted(self._suspects(step), self.tokenizer),
        )

    def _suspects(self, step: int | None) -> list[Suspect]:
        """Return the rows with the highest losses: of the step in progress, or of validation.

        step: the step after which validation rows were scored; None: the step in progress.
        """
        run = self.run
        rows, numbers = run.rows, run.rows_of_step(self.step + 1)
        if step is not None and run.valid is not None:
            rows, numbers = run.valid, list(range(min(VALID_ROWS_MAX, len(run.valid))))
        return highest_losses(self.objective, self.model, rows, numbers, self.device)
