"""Writes the checkpoints of one attempt, and restores the state that one holds.

In two phases. Between two steps the state is copied; that is all the training waits for. A thread
writes, hashes, syncs, renames, reads back and reports the copy while the training continues. There
is one copy at a time, all in the same memory: the next one waits until the last is on disk. Where
memory does not suffice for a copy, and always where every weight is trained, the training waits for
all of it.

Of several ranks the first writes. Where they have shards of the optimizer, each writes its own, by
PyTorch's distributed checkpoints, as safetensors; the manifest comes last and has all of them.
"""

import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec
from torch import Tensor

from schemas.units import Ms
from tunery.ml import checkpoints, state
from tunery.ml.adamw import AdapterAdamW
from tunery.ml.device import settle
from tunery.ml.durable import PARTIAL_PREFIX
from tunery.ml.engines import TrainingEngine
from tunery.ml.evaluations import Evaluations
from tunery.ml.free_memory import free_bytes
from tunery.ml.training_run import TrainingRun
from tunery.work.divergence import LossWindow
from tunery.work.events import Checkpointed
from tunery.work.exits import WorkError
from tunery.work.learning import Learning

COPY_SHARE: Final = 0.5  # of the memory that is free; the training needs the rest at its peaks


@dataclass(frozen=True)
class CopiedState:
    """A state that is not on disk yet."""

    step: int
    snapshot: state.Snapshot
    # folder, shards: folder where ranks write their shares of the optimizer, and the wait for all
    # of them; None: rank 0 has all of it
    folder: Path
    shards: Future[Any] | None
    # elapsed_ms, monotonic_s: when it was taken, since the process began and on the clock
    elapsed_ms: Ms
    monotonic_s: float
    stall_s: float | None  # what the training waited for it; None: it waits until all is written

    def write(self, directory: Path) -> None:
        """Write all files but the manifest. Raises OSError, and what writing a shard raises."""
        if self.shards is not None:
            self.shards.result()  # of all ranks: torch's checkpoint ends once they all have written
            for path in sorted(self.folder.iterdir()):
                _order_header(path)
                path.rename(directory / path.name)
            self.folder.rmdir()
        self.snapshot.write(directory)


class Saver:
    """Checkpoints of one attempt; what they hold of the run is in `run`.

    Its block ends once the last one is on disk, and raises what writing it failed with.
    """

    def __init__(self, run: TrainingRun, engine: TrainingEngine) -> None:
        self.run, self.engine = run, engine
        self._thread = ThreadPoolExecutor(1, "checkpoints")
        self._pending: Future[None] | None = None
        self._copied: list[Tensor] = []

    def __enter__(self) -> None:
        """Nothing is to be done before the first checkpoint."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.shutdown()  # waits, also where the training failed: a retry continues from it
        if error is None:
            self.check()

    def save(self, step: int) -> None:
        """Copy the state after a step, and have it written. Raises as `check` does.

        All ranks do it after the same step, and the first one writes. Where each rank has masters
        and moments of its own it writes these, into a folder that the first one takes them from.
        """
        run = self.run
        if not run.ranks.is_first and not self.engine.passes_together:
            return  # the first one has all of it
        settle()  # the step itself is no stall
        began_s = time.monotonic()
        self._wait()  # two copies would need their memory twice
        can_copy = self._can_copy()
        elapsed_ms, monotonic_s = run.events.elapsed_ms(), time.monotonic()
        copies = state.Copies(in_place=not can_copy, kept=self._copied)
        snapshot = state.take(
            engine=self.engine,
            base_id=run.spec.base_id,
            progress=self._progress(step),
            best=run.best,
            texts={} if run.scores is None else run.scores.files(),
            copies=copies,
        )
        self._copied = copies.all()
        folder = Path(run.spec.out_dir) / f"{PARTIAL_PREFIX}shards-{step}"
        shards = self.engine.save_shards(folder)
        stall_s = time.monotonic() - began_s if can_copy else None
        copied = CopiedState(step, snapshot, folder, shards, elapsed_ms, monotonic_s, stall_s)
        self._pending = self._thread.submit(self._write if run.ranks.is_first else _finish, copied)
        if not can_copy:
            self._wait()
        run.saved_at_s = time.monotonic()
        run.save_s = run.saved_at_s - began_s

    def prepare(self) -> None:
        """Have the memory for a copy before the training. New pages take as long as copying."""
        optimizer = self.engine.optimizer
        if not self.run.ranks.is_first or not isinstance(optimizer, AdapterAdamW):
            return
        if self._can_copy():
            self._copied = state.memory_for_copies(optimizer)

    def _wait(self) -> None:
        """Wait for what is being written. Raises as `check` does."""
        if self._pending is not None:
            self._pending.exception()
        self.check()

    def _can_copy(self) -> bool:
        """Return whether a copy fits into the processor's memory during the training.

        Never true for a whole model: its copy is as large as all that its memory plan has besides
        activations.
        """
        if self.run.hyper.adaptation == "full":
            return False
        needed = self.engine.state_bytes - sum(tensor.nbytes for tensor in self._copied)
        return needed <= COPY_SHARE * free_bytes()

    def check(self) -> None:
        """Raises what writing the last checkpoint failed with, once that is known."""
        if self._pending is not None and self._pending.done():
            written, self._pending = self._pending, None
            written.result()

    def load(self, directory: Path) -> None:
        """Restore what is trained, and what the run knows of its losses and evaluations."""
        self.engine.load(directory)
        progress = state.load_progress(directory)
        self.run.window = LossWindow(tuple(progress["losses"]), progress["spikes"])
        self.run.loss = progress["loss"]
        self.run.evaluations = Evaluations(*progress.get("evaluations", ()))
        self.run.learning = msgspec.convert(progress.get("learning", []), Learning)
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
                copied.write,
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
        if run.hyper.stop_if_nothing_learnt:
            progress["learning"] = msgspec.to_builtins(run.learning)
        return progress


def _order_header(path: Path) -> None:
    """Give the header of a file of safetensors one order: two equal runs write equal bytes.

    The library writes the entries of its metadata, of which PyTorch adds some, in any order.
    """
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        content = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        file.seek(8)
        file.write(content.ljust(length))


def _finish(copied: CopiedState) -> None:
    """In the thread of another rank than the first: wait until its shards are written."""
    if copied.shards is not None:
        copied.shards.result()
