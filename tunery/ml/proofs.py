"""What trainings have shown on this node, so that the next ones do not have to show it again.

    <folder>/<hash of what it follows from>.json

* Packed documents do not see each other: true of a base, with one set of libraries.
* A step on the longest rows fits: true of rows that are no longer, where as much memory is free.

A proof has numbers of bytes and tokens, nothing of what was trained on. One that is torn, or of
another form, is none; it is then shown again. Without a folder everything is.
"""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias
from uuid import uuid4

import msgspec

from tunery.ml.checkpoints import canonical_json
from tunery.ml.durable import PARTIAL_PREFIX
from tunery.ml.training_run import TrainingRun

Shown: TypeAlias = dict[str, int]
KEPT_MAX: Final = 256  # the oldest go
SPARE: Final = 1.1  # of the memory that a step took: allocators do not fill it alike
# Settings that change neither a step's memory nor whether documents see each other.
NOT_FACTS: Final = frozenset(
    {
        *("n_epochs", "max_steps", "accumulation", "max_length", "seed", "alpha", "alpha_pattern"),
        *("learning_rate", "warmup", "weight_decay", "scheduler", "grad_norm_max", "lora_plus"),
        *("eval_every_steps", "sample_every_steps", "best_checkpoint", "early_stopping_patience"),
        *("beta", "label_smoothing", "gamma", "desirable", "undesirable"),
    }
)


class Proofs:
    """Those of one attempt's base, libraries and settings."""

    def __init__(self, run: TrainingRun) -> None:
        folder = run.spec.proof_dir
        self._folder = None if folder is None else Path(folder)
        self._is_packed = run.hyper.packing
        base = {name: run.fingerprint[name] for name in ("base", "precision")}
        self._base = base | {
            f"environment.{name}": run.environment[name] for name in run.environment
        }
        hyper = msgspec.to_builtins(run.hyper)
        self._settings = {
            f"hyper.{name}": str(hyper[name]) for name in hyper if name not in NOT_FACTS
        }

    def of_packing(self, prove: Callable[[], float | None]) -> float | None:
        """What `prove` gives; None where it is known, or nothing is packed. Raises as it does."""
        if not self._is_packed:
            return None
        facts = self._base | {"of": "packing"}
        if self._load(facts) is not None:
            return None
        difference = prove()
        if difference is not None:
            self._save(facts, {})
        return difference

    def of_longest_rows(
        self, size: Shown, attempt: Callable[[], int], free_bytes: Callable[[], int]
    ) -> bool:
        """Whether `attempt` had to be made; it raises as that does.

        size: how large the batch is, in all that its memory follows from
        attempt: takes the step, and says how many bytes it needed
        """
        facts = self._base | self._settings | {"of": "longest rows"}
        shown = self._load(facts)
        if (
            shown is not None
            and all(shown.get(name, -1) >= size[name] for name in size)
            and free_bytes() >= SPARE * shown["bytes"]
        ):
            return False
        self._save(facts, {**size, "bytes": attempt()})
        return True

    def _path(self, folder: Path, facts: Mapping[str, str]) -> Path:
        return folder / f"{hashlib.sha256(canonical_json(facts).encode()).hexdigest()[:32]}.json"

    def _load(self, facts: Mapping[str, str]) -> Shown | None:
        if self._folder is None:
            return None
        try:
            content = self._path(self._folder, facts).read_bytes()
            return msgspec.json.decode(content, type=Shown)
        except (OSError, msgspec.MsgspecError):
            return None

    def _save(self, facts: Mapping[str, str], shown: Shown) -> None:
        """Raises OSError where the disk is full or broken: the training needs it as well."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        final = self._path(self._folder, facts)
        partial = final.with_name(f"{PARTIAL_PREFIX}{uuid4().hex}")
        partial.write_bytes(msgspec.json.encode(shown))
        partial.replace(final)
        with suppress(FileNotFoundError):  # another training deletes them, too
            by_age = sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
            for path in by_age[:-KEPT_MAX]:
                path.unlink()
