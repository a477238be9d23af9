"""Results of checks that trainings made on this node, kept so that later ones can skip them.

    <folder>/<hash of what it follows from>.json

* Packed documents do not attend to each other: holds for one base model and one set of libraries.
* A step on the longest rows fits into memory: holds for shorter rows while as much memory is free.

A proof holds numbers of bytes and tokens, and no training data. A file that is incomplete or cannot
be read is ignored, and the check is made again. Without a folder every check is made.
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
KEPT_MAX: Final = 256  # files; the oldest are deleted
SPARE: Final = 1.1  # times the memory of a step must be free: allocation differs between runs
# Settings that change neither a step's memory nor whether documents see each other.
NOT_FACTS: Final = frozenset(
    {
        *("n_epochs", "max_steps", "accumulation", "max_length", "seed", "alpha", "alpha_pattern"),
        *("learning_rate", "warmup", "weight_decay", "scheduler", "grad_norm_max", "lora_plus"),
        *("eval_every_steps", "sample_every_steps", "best_checkpoint", "early_stopping_patience"),
        "stop_if_nothing_learnt",
        *("beta", "label_smoothing", "gamma", "desirable", "undesirable", "center_rewards"),
    }
)


class Proofs:
    """The proofs for the base model, libraries and settings of one attempt."""

    def __init__(self, run: TrainingRun) -> None:
        # ranks that pass weights on make a check together, or none does
        folder = None if run.ranks.count > 1 else run.spec.proof_dir
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
        """The result of `prove`; None if proved before, or nothing is packed. Raises as `prove`."""
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
        """Run `attempt` unless a proof covers it; whether it ran. Raises as `attempt`.

        size: everything about the batch that its memory depends on
        attempt: makes the step, and returns how many bytes it needed
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
        with suppress(FileNotFoundError):  # another training may delete the same files
            by_age = sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
            for path in by_age[:-KEPT_MAX]:
                path.unlink()
