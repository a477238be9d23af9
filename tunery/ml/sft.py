"""TRL's SFT trainer on rows that are packed already, with our own checkpoints.

What is overridden, and why (trl and transformers are pinned, each override is covered by a test):

* data: rows come packed from the cache, so TRL's preparation is skipped and the collator is ours;
  the order of rows is a pure function of (seed, epoch).
* loss: on a CPU TRL's fused head is slower than the plain head on labelled tokens alone.
* checkpoints: the trainer's own are written in place, unverified, with pickles in them.
* learning rate: the library's warm-up spends the first step at a rate of zero; ours does not.
* gradients: those of micro-batches are added and clipped in fp32, whatever the weights are in.
* non-finite numbers: the trainer logs a NaN loss as 0.0 and trains on; ours stops.
"""

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from datasets import Dataset
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from transformers import PrinterCallback
from trl import SFTConfig, SFTTrainer

from schemas.units import Ms
from tunery.ml import state
from tunery.ml.adamw import AdapterAdamW
from tunery.ml.attention import document_bounds, join_rows
from tunery.ml.boundary import Boundary
from tunery.ml.device import peak_memory_bytes
from tunery.ml.exchange import SAID_AFTER_S
from tunery.ml.methods import objective_of
from tunery.ml.objectives import mean_scores
from tunery.ml.order import row_order
from tunery.ml.reference import Stopped, compute_references
from tunery.ml.reinforcement import STEP, Reinforcement
from tunery.ml.saving import Saver
from tunery.ml.schedule import rate_factor
from tunery.ml.suspects import Suspect, highest_losses, quoted
from tunery.ml.trained import is_whole, trained_tensors
from tunery.ml.training_run import TrainingRun
from tunery.work.divergence import check_finite
from tunery.work.events import Evaluated, LossSpiked, Noted, StepCompleted

VALID_ROWS_MAX: Final = 32  # of the validation split, at each evaluation
ACCURACY: Final = "mean_token_accuracy"
OF_PAIRS: Final = ("reward_accuracy", "reward_margin", "reward_chosen", "reward_rejected")
OF_ANSWERS: Final = ("reward", "reward_std", "completion_tokens")
FIGURES_OF_RANKS: Final = (ACCURACY, *OF_PAIRS, *OF_ANSWERS)  # means of own micro-batches


class EpochOrder(torch.utils.data.Sampler[int]):
    """Row numbers in the order of the epoch the training loop is in."""

    def __init__(self, seed: int, n_rows: int) -> None:
        self.seed, self.n_rows, self.epoch = seed, n_rows, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.n_rows

    def __iter__(self) -> Iterator[int]:
        return iter(row_order(self.seed, self.epoch, self.n_rows))


class PackedSFT(SFTTrainer):  # type: ignore[misc]  # trl is untyped
    """The trainer of one attempt; its own state is in `run`."""

    def __init__(self, run: TrainingRun, model: Any, tokenizer: Any) -> None:
        self.run = run
        self.adamw = AdapterAdamW(
            state.trainable(model),
            rate=run.hyper.learning_rate,
            weight_decay=run.hyper.weight_decay,
            ratio=run.hyper.lora_plus,
            whole=is_whole(model),
            ranks=run.ranks,
            sharded=run.sharded,
        )
        self.saver = Saver(run, self.adamw)
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
        on_cpu = not torch.cuda.is_available()
        super().__init__(
            model=model,
            args=_arguments(run, on_cpu),
            data_collator=lambda items: run.rows.batch([item["row"] for item in items]),
            train_dataset=Dataset.from_dict({"row": list(range(len(run.rows)))}),
            processing_class=tokenizer,
            callbacks=[Boundary(run, self.saver)],
            optimizers=(self.adamw, _schedule(run, self.adamw)),
        )
        if run.hyper.recompute:  # the training loop begins with it: too late for the trial step
            self.model.activation_checkpointing_enable(
                activation_checkpointing_kwargs={"use_reentrant": False}
            )
        self.on_cpu = on_cpu
        self.loss_is_scaled_for_ga = True
        self.micro_batch = 0  # of the step in progress: the next one
        self.micro_batches = run.hyper.accumulation  # that the step has
        self.remove_callback(PrinterCallback)
        if run.ranks.is_first:
            run.ranks.on_wait(self._note_wait)

    def try_longest_rows(self) -> None:
        """One step on the micro-batch that needs most memory, undone, before anything is billed.

        Raises what running out of memory raises.
        """
        rows = self.run.rows
        longest = rows.batch(rows.longest(self.run.hyper.batch_size))
        batch = {name: value.to(self.args.device) for name, value in longest.items()}
        cuda = [self.args.device] if self.args.device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda):
            self.model.train()
            with self._round(self.run.ranks.count):
                self.compute_loss(self.model, batch).backward()
            self.adamw.rehearse()
        if self.run.scores is not None:
            self.run.scores.forget()
        self._metrics["train"].clear()

    def train_to_end(self, checkpoint: str | None) -> int:
        """Train from a checkpoint, or from the beginning; the step that it came to."""
        begins_at = int(state.load_progress(Path(checkpoint))["step"]) if checkpoint else 0
        if self.objective.needs_reference:
            try:
                compute_references(self.run, self.model, self.args.device, begins_at)
            except Stopped:
                return begins_at
        if checkpoint is not None:
            self._load_from_checkpoint(checkpoint)
            if self.run.has_stopped_early:  # its attempt ended before the adapter was written
                return begins_at
        if self.run.ranks.is_first:
            self.saver.prepare(self.model)
        with self.saver:
            self.train(resume_from_checkpoint=checkpoint)
        return int(self.state.global_step)

    # --- data and loss
    def _get_train_sampler(self, train_dataset: Any = None) -> EpochOrder:
        return EpochOrder(self.run.hyper.seed, len(self.run.rows))

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Mean loss over the items of a step; on a GPU with TRL's own where that is the same."""
        objective = self.objective
        if return_outputs or (objective.is_librarys and not self.on_cpu):
            inputs = join_rows(model, inputs)
            inputs |= document_bounds(model, inputs["position_ids"])
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if isinstance(objective, Reinforcement):
            inputs = inputs | {STEP: torch.tensor(self.state.global_step)}
        scored = objective.score(model, inputs)
        items = len(scored.losses) if num_items_in_batch is None else int(num_items_in_batch)
        for name, values in scored.figures.items():
            if len(values):
                self._metrics["train"][name].append(float(values.float().mean()))
        return scored.losses.sum() / max(1, items)

    def _get_num_items_in_batch(
        self, batch_samples: list[dict[str, Tensor]], device: torch.device
    ) -> Tensor:
        items = sum(self.objective.count(batch) for batch in batch_samples)
        return torch.tensor(items, device=device)

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """Micro-batches of a step, also those of other ranks: they count for the mean."""
        self.micro_batch = 0
        samples, items = super().get_batch_samples(*args, **kwargs)
        self.micro_batches = len(samples)
        return samples, items

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """The loss of a micro-batch, with gradients; 0 of those that other ranks compute."""
        run, number = self.run, self.micro_batch
        self.micro_batch += 1
        loss: Tensor = torch.zeros((), device=self.args.device)
        is_own, givers = run.ranks.takes(number), run.ranks.givers(number, self.micro_batches)
        is_left_out = self.micro_batch == self.micro_batches and run.ranks.number >= givers
        if is_own:
            began_s, waited_s = time.monotonic(), run.ranks.waited_s
            run.ranks.seed(run.hyper.seed, self.state.global_step + 1, number)
            with self._round(givers):
                loss = super().training_step(*args, **kwargs)
            waited_s = run.ranks.waited_s - waited_s
            run.micro_batches_s.append(time.monotonic() - began_s - waited_s)
        elif run.sharded is not None and is_left_out:
            with self._round(givers):
                run.sharded.take_part()
        else:
            return loss
        # Of sharded layers no rank looks for suspects by itself.
        value = float(loss) if run.sharded is None else run.ranks.add([float(loss)])[0]
        self._check_finite(value, "the loss")
        return loss

    def _round(self, givers: int) -> AbstractContextManager[None]:
        """Passes of a micro-batch that so many ranks compute one beside."""
        sharded = self.run.sharded
        return nullcontext() if sharded is None else sharded.round(givers)

    def _clip_grad_norm(self, model: Any) -> Tensor:
        norm = self.adamw.clip(self.run.hyper.grad_norm_max or math.inf)
        self._check_finite(float(norm), "the gradient norm")
        return norm

    def _check_finite(self, value: float, what: str, step: int | None = None) -> None:
        """`step`: after which it was computed; None: in the one that is not finished."""
        check_finite(
            value,
            what=what,
            step=self.state.global_step + 1 if step is None else step,
            learning_rate=self._get_learning_rate(),
            suspects=lambda: quoted(self._suspects(step), self.processing_class),
        )

    def _suspects(self, step: int | None) -> list[Suspect]:
        """Of the step in progress, or of the validation rows that were scored after one."""
        run = self.run
        rows, numbers = run.rows, run.rows_of_step(self.state.global_step + 1)
        if step is not None and run.valid is not None:
            rows, numbers = run.valid, list(range(min(VALID_ROWS_MAX, len(run.valid))))
        return highest_losses(self.objective, self.model, rows, numbers, self.args.device)

    # --- events
    def _note_wait(self, number: int) -> None:
        text = (
            f"rank {number} of {self.run.ranks.count} has been waited for for {SAID_AFTER_S:.0f} s"
        )
        self.run.events.emit(Noted(step=self.state.global_step, message=text))

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Emit the step, and a spike when the loss has stayed high."""
        self.control.should_log = False
        values = {name: list(v) for name, v in self._metrics["train"].items() if v}
        self._metrics["train"].clear()
        if "loss" not in logs:
            return
        run, step = self.run, self.state.global_step
        figures = {name: sum(v) / len(v) for name, v in values.items()}
        run.loss = logs["loss"]
        rank_ms: tuple[Ms, ...] = ()
        if run.ranks.count > 1:
            took_s = run.micro_batches_s
            mean_ms = 1_000 * sum(took_s) / len(took_s) if took_s else 0.0
            rank_ms = tuple(map(math.ceil, run.ranks.each(mean_ms)))
            own = [values.get(name, []) for name in FIGURES_OF_RANKS]
            sums = run.ranks.add([run.loss, *map(sum, own), *map(len, own)])
            run.loss, totals, counts = sums[0], sums[1 : 1 + len(own)], sums[1 + len(own) :]
            for name, total, count in zip(FIGURES_OF_RANKS, totals, counts, strict=True):
                if count:
                    figures[name] = total / count
        run.window = run.window.add(run.loss)
        run.events.emit(
            StepCompleted(
                step=step,
                total_steps=run.plan.total_steps,
                epoch=round(step / run.plan.steps_per_epoch, 6),
                loss=run.loss,
                grad_norm=logs.get("grad_norm"),
                learning_rate=logs["learning_rate"],
                mean_token_accuracy=figures.get(ACCURACY),
                tokens=run.plan.tokens_after(step),
                tokens_total=run.plan.tokens_total,
                tokens_per_s=run.plan.tokens_of(step) / run.step_s if run.step_s else None,
                memory_bytes=peak_memory_bytes(self.args.device),
                rank_ms=rank_ms,
                reward_accuracy=figures.get("reward_accuracy"),
                reward_margin=figures.get("reward_margin"),
                reward_chosen=figures.get("reward_chosen"),
                reward_rejected=figures.get("reward_rejected"),
                reward=figures.get("reward"),
                reward_std=figures.get("reward_std"),
                completion_tokens=figures.get("completion_tokens"),
            )
        )
        # a loss that says how the answers to a prompt differ is around 0, and has no usual value
        if run.window.spiking and not isinstance(self.objective, Reinforcement):
            numbers = run.rows_of_step(step)
            worst = highest_losses(self.objective, self.model, run.rows, numbers, self.args.device)
            text = (
                "the loss rose far above its usual values and stayed there; highest in "
                f"{', '.join(suspect.label for suspect in worst)} of the packed rows"
            )
            run.events.emit(LossSpiked(step=step, loss=run.loss, message=text))

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Emit the loss on the sample of the validation split."""
        self.control.should_evaluate = False
        run = self.run
        if run.valid is None:
            return {}
        means = mean_scores(
            self.objective,
            self.model,
            run.valid,
            rows_max=VALID_ROWS_MAX,
            device=self.args.device,
        )
        loss, step = means.loss, self.state.global_step
        if loss is not None:
            loss = run.ranks.of_first(loss)  # all ranks must conclude the same of it
            self._check_finite(loss, "the loss on validation rows", step)
        evaluated = Evaluated(
            step=step,
            valid_loss=loss,
            valid_accuracy=means.figures.get(ACCURACY),
            valid_reward_accuracy=means.figures.get("reward_accuracy"),
        )
        run.events.emit(evaluated)
        if loss is None:
            return {}
        self._compare(loss)
        return {"eval_loss": loss}

    def _compare(self, loss: float) -> None:
        """Keep the best weights; end the run once its validation loss gets no better."""
        run, step = self.run, self.state.global_step
        run.evaluations = run.evaluations.add(step, loss)
        if run.evaluations.step == step and run.hyper.best_checkpoint:
            tensors = trained_tensors(self.model)
            run.best = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
        if run.has_stopped_early and step < run.plan.total_steps:
            self.control.should_save = self.control.should_training_stop = True
            text = (
                f"the training ends early: its validation loss has not been below that of step "
                f"{run.evaluations.step} ({run.evaluations.loss:.4f}) in {run.evaluations.worse} "
                "evaluations"
            )
            run.events.emit(Noted(step=step, message=text))

    # --- checkpoints: see `saving`
    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        self.saver.save(self.model, self.lr_scheduler, self.state)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        self.saver.load(Path(resume_from_checkpoint), self.model)

    def _load_optimizer_and_scheduler(self, checkpoint: str) -> None:
        state.load_optimizer(Path(checkpoint), self.adamw, self.lr_scheduler)

    def _load_rng_state(self, checkpoint: str) -> None:
        """The loop calls it once the first batch is fetched: that draws random numbers too."""
        state.load_rng(Path(checkpoint))

    def _load_scaler(self, checkpoint: str) -> None:
        """No gradient scaler: bf16 and fp32 need none."""


def _schedule(run: TrainingRun, adamw: AdapterAdamW) -> LambdaLR:
    hyper, total = run.hyper, run.plan.total_steps
    warmup = round(hyper.warmup * total)
    factor = partial(rate_factor, hyper.scheduler, warmup=warmup, total=total)
    return LambdaLR(adamw, factor)


def _arguments(run: TrainingRun, on_cpu: bool) -> SFTConfig:
    hyper = run.hyper
    return SFTConfig(
        output_dir=run.spec.out_dir,
        num_train_epochs=hyper.n_epochs,
        max_steps=run.plan.total_steps if hyper.max_steps else -1,
        per_device_train_batch_size=hyper.batch_size,
        gradient_accumulation_steps=hyper.accumulation,
        learning_rate=hyper.learning_rate,
        weight_decay=hyper.weight_decay,
        max_grad_norm=hyper.grad_norm_max or math.inf,  # 0: the norm would not be measured
        neftune_noise_alpha=hyper.neftune or None,
        max_length=None,  # rows were cut and packed when the cache was made
        seed=hyper.seed,
        bf16=False,  # weights are in their final type already: autocast would only cost
        fp16=False,
        gradient_checkpointing=hyper.recompute,
        gradient_checkpointing_kwargs={"use_reentrant": False} if hyper.recompute else None,
        use_cpu=on_cpu,
        save_strategy="no",
        eval_strategy="no",
        logging_strategy="steps",
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_num_workers=0,
        dataloader_pin_memory=not on_cpu,
        dataset_kwargs={"skip_prepare_dataset": True},
    )
