"""Log-probabilities of answers under the model as it is before training: computed once.

They are kept in parts, each written whole and verified when it is read:

    <key>/part-00000.safetensors    of 32 packed rows: `logps`, with its SHA-256 in the header

Of several ranks each computes some of the parts, and sends them to the others. Where a forward pass
is one of all ranks, each makes as many as the one that has most rows to compute.

The key is a hash of what they follow from, so that a training that is stopped or killed, or another
one of the same rows, goes on with the parts that are there.
"""

import hashlib
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tunery.ml.checkpoints import canonical_json
from tunery.ml.durable import PARTIAL_PREFIX, fsync
from tunery.ml.loss import answer_scores
from tunery.ml.packed import PackedRows, mismatched
from tunery.ml.ranks import ALONE, Ranks
from tunery.ml.training_run import TrainingRun
from tunery.work.events import Noted

PART_ROWS: Final = 32
KEPT_MAX: Final = 8  # sets of one folder; the oldest go
LOGPS: Final = "logps"
SHA256: Final = "sha256"
FOLDER: Final = "reference"
NOT_FACTS: Final = {"hyper", "order"}  # of a run's fingerprint
NOT_OF_ROWS: Final = {"micro_batch"}  # of its environment: rows are computed one by one


class Stopped(Exception):
    """The process was asked to stop between two parts; those before are kept."""


class ReferenceCache:
    """The parts of one set of rows under one model."""

    def __init__(self, folder: Path, facts: Mapping[str, str]) -> None:
        """facts: all that the numbers follow from"""
        self.folder = folder / hashlib.sha256(canonical_json(facts).encode()).hexdigest()[:32]

    def load(self, part: int, references: int) -> Tensor | None:
        """A part if it is whole."""
        try:
            with safe_open(self._path(part), framework="pt") as file:
                logps: Tensor = file.get_tensor(LOGPS)
                sha256 = (file.metadata() or {}).get(SHA256)
        except (OSError, SafetensorError):
            return None
        whole = logps.shape == (references,) and _digest(logps) == sha256
        return logps if whole else None

    def save(self, part: int, logps: Tensor) -> None:
        """Write a part; it is there whole, or not at all."""
        final = self._path(part)
        final.parent.mkdir(parents=True, exist_ok=True)
        partial = final.with_name(f"{PARTIAL_PREFIX}{final.name}")
        save_file({LOGPS: logps}, partial, metadata={SHA256: _digest(logps)})
        fsync(partial)
        partial.replace(final)
        fsync(final.parent)

    def drop_others(self) -> None:
        """Delete the oldest sets of the folder."""
        others = (path for path in self.folder.parent.iterdir() if path != self.folder)
        with suppress(FileNotFoundError):  # another process has deleted one
            by_age = sorted(others, key=lambda path: path.stat().st_mtime_ns)
            for path in by_age[: 1 - KEPT_MAX]:
                shutil.rmtree(path, ignore_errors=True)

    def _path(self, part: int) -> Path:
        return self.folder / f"part-{part:05d}.safetensors"


def compute_references(
    run: TrainingRun, model: Any, device: torch.device, step: int, *, together: bool
) -> None:
    """Give the rows of a run their reference. Raises `Stopped` when it was asked to stop.

    step: step at which the attempt begins
    together: forward passes are those of all ranks
    """

    def report(done: int, kept: int) -> None:
        of = len(run.rows)
        text = f"the reference log-probabilities of {done} of {of} packed rows are known"
        run.events.emit(Noted(step=step, message=text + (f"; {kept} were before" if kept else "")))
        if run.must_stop() and done < of:
            raise Stopped

    folder = Path(run.spec.reference_dir or Path(run.spec.out_dir) / FOLDER)
    facts = {name: run.fingerprint[name] for name in run.fingerprint.keys() - NOT_FACTS}
    around = run.environment
    facts |= {f"environment.{name}": around[name] for name in around.keys() - NOT_OF_ROWS}
    packing = run.hyper.packing
    cache = ReferenceCache(folder, facts | {"packing": str(packing)})
    run.rows = with_reference(
        model,
        run.rows,
        device,
        packing=packing,
        cache=cache,
        report=report,
        ranks=run.ranks,
        together=together,
    )
    if run.valid is not None:  # few rows
        logps = [
            row_logps(model, run.valid, index, device, packing) for index in range(len(run.valid))
        ]
        run.valid = run.valid.with_reference(torch.cat(logps))


def with_reference(
    model: Any,
    rows: PackedRows,
    device: torch.device,
    *,
    packing: bool,
    cache: ReferenceCache,
    report: Callable[[int, int], None] = lambda done, kept: None,
    ranks: Ranks = ALONE,
    together: bool = False,
) -> PackedRows:
    """The rows with the log-probabilities of their answers under the model as it is.

    report: called after each part of each rank with the rows that are done, and how many of them
        were kept from before; what it raises ends the stage
    together: see `compute_references`
    """
    starts = range(0, len(rows), PART_ROWS)
    parts = [range(start, min(start + PART_ROWS, len(rows))) for start in starts]
    references = [sum(rows.rows[index].references for index in chosen) for chosen in parts]
    own: dict[int, Tensor] = {}
    kept = 0
    for first in range(0, len(parts), ranks.groups):
        part = first + ranks.group
        chosen = parts[part] if part < len(parts) else range(0)
        known = cache.load(part, references[part]) if chosen else None
        unknown = chosen if known is None else range(0)
        # Where all ranks pass together, others may have more to compute.
        count = ranks.most(len(unknown)) if together else len(unknown)
        passes = [*unknown, *[0] * (count - len(unknown))]
        logps = [row_logps(model, rows, row, device, packing) for row in passes]
        if unknown:
            known = torch.cat(logps[: len(unknown)])
            if ranks.number % ranks.tensor_parallel == 0:  # others of its group have the same
                cache.save(part, known)
        if known is not None:
            own[part] = known
        kept += int(ranks.add_groups([len(chosen) - len(unknown)])[0])
        report(parts[min(first + ranks.groups, len(parts)) - 1].stop, kept)
    if own:
        cache.drop_others()
    # Each part is in one rank, and 0 in the others: sums are exact.
    zeros = [torch.zeros(count) for count in references]
    mine = torch.cat([own.get(part, zeros[part]) for part in range(len(parts))])
    return rows.with_reference(torch.tensor(ranks.add_groups(mine.tolist())))


def row_logps(
    model: Any, rows: PackedRows, index: int, device: torch.device, packing: bool
) -> Tensor:
    """Log-probabilities of the answers of one packed row, float32 [references], without dropout."""
    training = model.training
    model.eval()
    with torch.no_grad():
        batch = {name: value.to(device) for name, value in rows.batch([index]).items()}
        logps = [answer_scores(model, batch, packing=packing).logps]
        if (others := mismatched(batch)) is not None:
            logps.append(answer_scores(model, others, packing=packing).logps)
    model.train(training)
    return torch.cat(logps).float().cpu()


def _digest(logps: Tensor) -> str:
    return hashlib.sha256(logps.numpy().tobytes()).hexdigest()
