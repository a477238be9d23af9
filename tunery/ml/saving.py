"""Writes the checkpoints of one attempt, and restores the state that one holds.

In two phases. Between two steps the state is copied; that is all the training waits for. A thread
writes, hashes, syncs, renames, reads back and reports the copy while the training goes on. There is
one copy at a time, all in the same memory: the next one waits until the last is on disk. Where
memory does not suffice for a copy, and always where every weight is trained, the training waits for
all of it.

Of several ranks the first writes. Each other one tells it what it has of the optimizer, in pieces
that go into the copy, or to the file, and then trains on.
"""

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from torch import Tensor
from transformers import TrainerState

from schemas.units import Ms
from tunery.ml import checkpoints, state
from tunery.ml.adamw import AdapterAdamW
from tunery.ml.checkpoints import canonical_json
from tunery.ml.device import settle
from tunery.ml.evaluations import Evaluations
from tunery.ml.free_memory import free_bytes
from tunery.ml.trained import is_whole, trained_tensors
from tunery.ml.training_run import TrainingRun
from tunery.work.divergence import LossWindow
from tunery.work.events import Checkpointed
from tunery.work.exits import WorkError

TRAINER_STATE: Final = "trainer_state.json"
COPY_SHARE: Final = 0.5  # of the memory that is free; the training needs the rest at its peaks


@dataclass(frozen=True)
class CopiedState:
    """A state that is not on disk yet.

    elapsed_ms, monotonic_s: when it was taken, since the process began and on the clock
    stall_s: what the training waited for it; None: it waits until all is written
    """

    step: int
    snapshot: state.Snapshot
    elapsed_ms: Ms
    monotonic_s: float
    stall_s: float | None


class Saver:
    """Checkpoints of one attempt; what they hold of the run is in `run`.

    Its block ends once the last one is on disk, and raises what writing it failed with.
    """

    def __init__(self, run: TrainingRun, adamw: AdapterAdamW) -> None:
        self.run, self.adamw = run, adamw
        self._thread = ThreadPoolExecutor(1, "checkpoints")
        self._pending: Future[None] | None = None
        self._loaded: Path | None = None
        self._copied: list[Tensor] = []
        self._adapter: Mapping[str, Tensor] = {}

    def __enter__(self) -> None:
        """Nothing is to be done before the first checkpoint."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.shutdown()  # waits, also where the training failed: a retry goes on from it
        if error is None:
            self.check()

    def save(self, model: Any, scheduler: Any, position: TrainerState) -> None:
        """Copy the state after a step, and have it written. Raises as `check` does, RankLost.

        All ranks do it after the same step.
        """
        if not self.run.ranks.is_first:
            if self.run.sharded is not None:
                self.run.sharded.pass_all()
            self.adamw.give()
            return
        settle()  # the step itself is no stall
        run, began_s = self.run, time.monotonic()
        self._wait()  # two copies would need their memory twice
        can_copy = self._can_copy()
        copies = state.Copies(in_place=not can_copy, kept=self._copied)
        elapsed_ms, monotonic_s = run.events.elapsed_ms(), time.monotonic()
        scores = {} if run.scores is None else run.scores.files()
        snapshot = state.take(
            model=model,
            base_id=run.spec.base_id,
            optimizer=self.adamw,
            scheduler=scheduler,
            progress=self._progress(position.global_step),
            best=run.best,
            texts={TRAINER_STATE: _position(position), **scores},
            copies=copies,
            trained=self.trained(model),
            sharded=run.sharded,
        )
        self._copied = copies.all()
        stall_s = time.monotonic() - began_s if can_copy else None
        copied = CopiedState(position.global_step, snapshot, elapsed_ms, monotonic_s, stall_s)
        self._pending = self._thread.submit(self._write, copied)
        if not can_copy:
            self._wait()
        run.saved_at_s = time.monotonic()
        run.save_s = run.saved_at_s - began_s

    def prepare(self, model: Any) -> None:
        """Do before the training what every checkpoint needs: find what is trained, and have the
        memory for a copy. New pages take as long as copying.
        """
        self.trained(model)
        if self.run.hyper.adaptation == "full":
            return
        if self.adamw.state_bytes <= COPY_SHARE * free_bytes():
            self._copied = state.memory_for_copies(self.adamw)

    def trained(self, model: Any) -> Mapping[str, Tensor]:
        """The trained tensors. Those of an adapter, which stay where they are, are found once: it
        takes as long as to copy them. Sharded layers are written from the device instead.
        """
        if self.run.sharded is not None:
            return {}
        if is_whole(model):
            return trained_tensors(model)
        self._adapter = self._adapter or trained_tensors(model)
        return self._adapter

    def _wait(self) -> None:
        """Wait for what is being written. Raises as `check` does."""
        if self._pending is not None:
            self._pending.exception()
        self.check()

    def _can_copy(self) -> bool:
        """Whether a copy fits into the memory of the processor beside the training.

        That of a whole model never counts as such: it is as large as all that the plan of its
        memory has beside activations.
        """
        if self.run.hyper.adaptation == "full":
            return False
        needed = self.adamw.state_bytes - sum(tensor.nbytes for tensor in self._copied)
        return needed <= COPY_SHARE * free_bytes()

    def check(self) -> None:
        """Raises what writing the last checkpoint failed with, once that is known."""
        if self._pending is not None and self._pending.done():
            written, self._pending = self._pending, None
            written.result()

    def load(self, directory: Path, model: Any) -> None:
        """Restore what is trained, and what the run knows of its losses and evaluations.

        Once: the training loop asks again for what is there already.
        """
        if self._loaded == directory:
            return
        self._loaded = directory
        state.load_weights(directory, model, self.adamw)
        progress = state.load_progress(directory)
        self.run.window = LossWindow(tuple(progress["losses"]), progress["spikes"])
        self.run.loss = progress["loss"]
        self.run.evaluations = Evaluations(*progress.get("evaluations", ()))
        self.run.best = state.load_best(directory)
        if self.run.scores is not None:
            self.run.scores.load(directory)

    def _write(self, copied: CopiedState) -> None:
        """In the thread: write and verify a checkpoint, delete the oldest, emit the event."""
        run, step = self.run, copied.step
        out_dir, tokens = Path(run.spec.out_dir), run.plan.tokens_after(step)
        try:
            run.saved = checkpoints.write(
                out_dir,
                copied.snapshot.write,
                step=step,
                tokens=tokens,
                run=run.fingerprint,
                environment=run.environment,
            )
        except checkpoints.Damaged as error:
            message = f"the checkpoint of step {step} is not what was written: {error}"
            raise WorkError("bad_node", message, "Check the disk of the node.") from error
        checkpoints.keep_newest(out_dir, run.spec.keep_checkpoints)
        passed_s = time.monotonic() - copied.monotonic_s
        run.events.emit(
            Checkpointed(
                step=step,
                epoch=round(step / run.plan.steps_per_epoch, 6),
                dir=run.saved.dir,
                manifest_sha256=run.saved.manifest_sha256,
                tokens=tokens,
                files=run.saved.files,
                captured_elapsed_ms=copied.elapsed_ms,
                captured_monotonic_ms=int(1000 * copied.monotonic_s),
                write_ms=round(1000 * (passed_s if copied.stall_s is None else copied.stall_s)),
                background_ms=round(1000 * passed_s),
            )
        )

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


def _position(position: TrainerState) -> str:
    """Where the training is, as the training loop of transformers reads it."""
    kept = TrainerState(
        epoch=position.epoch,
        global_step=position.global_step,
        max_steps=position.max_steps,
        num_train_epochs=position.num_train_epochs,
        train_batch_size=position.train_batch_size,
        logging_steps=position.logging_steps,
    )
    return canonical_json(asdict(kept))
