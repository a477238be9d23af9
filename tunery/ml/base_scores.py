"""Cache on the node of a base model's choices and answers, so that later evaluations reuse them.

    <folder>/<hash of the inputs>.json

The inputs are the base model's files, the tokenizer and chat template that write the questions, its
precision, the questions, the libraries and the machine.
Of a tenant's rows there are a hash, a loss and a count, and no text: prompts that a tenant wrote
are answered each time. A file names its inputs and has a hash of its content; one that does not
match is ignored and made anew.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
import torch
import transformers
from msgspec import UNSET, Struct, UnsetType

from tunery.ml.checkpoints import canonical_json
from tunery.ml.durable import PARTIAL_PREFIX
from tunery.platform.blobs.base_files import TOKENIZER_NAMES
from tunery.platform.blobs.files import file_sha256
from tunery.work.spec import ScoreSpec

METHOD: Final = 1  # rises when the scorer may choose differently
PACKING: Final[Mapping[str, str]] = {"proven": "packing"}
KEPT_MAX: Final = 64  # files; the oldest are deleted


class BaseScores(Struct, frozen=True):
    """Choices and answers of a base model."""

    choices: tuple[int, ...] = ()  # number of the choice of each item
    answers: tuple[str, ...] = ()  # texts for the prompts
    # shares of the true answers of each item, see `ItemScore`; unset: items have one right answer
    shares: tuple[float | None, ...] | UnsetType = UNSET
    # loss on validation rows, None without labels, and the number of rows answered exactly
    holdout: tuple[float | None, int] | UnsetType = UNSET


class KeptScores(Struct, frozen=True, forbid_unknown_fields=True):
    """Content of the file with the scores of one base model."""

    facts: Mapping[str, str]  # what the scores follow from
    scores: BaseScores
    sha256: str  # hash of the scores


class BaseScoreCache:
    """The scores of one base model in one precision."""

    def __init__(self, spec: ScoreSpec, precision: str, device: torch.device) -> None:
        self._folder = None if spec.base_scores_dir is None else Path(spec.base_scores_dir)
        self.precision = precision
        self._facts = {
            "base": spec.base_sha256,
            "tokenizer": _tokenizer_sha256(Path(spec.tokenizer_dir or spec.base_dir)),
            "precision": precision,
            "four_bits": str(spec.adaptation == "qlora"),
            "device": device.type,
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
            "method": str(METHOD),
        }

    def load_scores(self, task: bytes) -> BaseScores | None:
        """Return the cached scores of a file of items; None: there are none."""
        return self._load({"task": _sha256(task)})

    def save_scores(self, task: bytes, scores: BaseScores) -> None:
        """Store the scores. An unwritable folder is no error: scores are then computed anew."""
        self._save({"task": _sha256(task)}, scores)

    def load_choices(self, task: bytes) -> tuple[int, ...] | None:
        """The choices for a file of items; None: they are not known."""
        kept = self.load_scores(task)
        return None if kept is None else kept.choices

    def save_choices(self, task: bytes, choices: Sequence[int]) -> None:
        """Keep them, as `save_scores` does."""
        self.save_scores(task, BaseScores(choices=tuple(choices)))

    def load_answers(self, prompts: Sequence[str], tokens_max: int) -> tuple[str, ...] | None:
        """The answers to prompts; None: they are not known."""
        kept = self._load(_asked(prompts, tokens_max))
        return None if kept is None else kept.answers

    def save_answers(self, prompts: Sequence[str], tokens_max: int, answers: Sequence[str]) -> None:
        """Keep them, as `save_scores` does."""
        self._save(_asked(prompts, tokens_max), BaseScores(answers=tuple(answers)))

    def load_holdout(self, task: bytes) -> tuple[float | None, int] | None:
        """Return the loss and the exact answers on validation rows; None: they are not known."""
        kept = self._load({"holdout": _sha256(task)})
        return None if kept is None or kept.holdout is UNSET else kept.holdout

    def save_holdout(self, task: bytes, loss: float | None, exact: int) -> None:
        """Keep them, as `save_scores` does. A loss that is no number is computed each time."""
        if loss is None or isfinite(loss):
            self._save({"holdout": _sha256(task)}, BaseScores(holdout=(loss, exact)))

    def is_packing_proven(self) -> bool:
        """Return whether documents of a packed row were found not to affect each other."""
        return self._load(PACKING) is not None

    def save_packing_proof(self) -> None:
        """Keep that they do not, which holds for rows of any tenant."""
        self._save(PACKING, BaseScores())

    def _path(self, facts: Mapping[str, str]) -> Path | None:
        return (
            None
            if self._folder is None
            else self._folder / f"{_sha256(canonical_json(facts).encode())}.json"
        )

    def _load(self, of: Mapping[str, str]) -> BaseScores | None:
        facts = {**self._facts, **of}
        path = self._path(facts)
        if path is None:
            return None
        with suppress(OSError, msgspec.MsgspecError):
            kept = msgspec.json.decode(path.read_bytes(), type=KeptScores)
            if kept.facts == facts and kept.sha256 == _sha256(msgspec.json.encode(kept.scores)):
                return kept.scores
        return None

    def _save(self, of: Mapping[str, str], scores: BaseScores) -> None:
        facts = {**self._facts, **of}
        path = self._path(facts)
        if path is None:
            return
        kept = KeptScores(facts, scores, _sha256(msgspec.json.encode(scores)))
        partial = path.with_name(f"{PARTIAL_PREFIX}{uuid4().hex}")
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(msgspec.json.encode(kept))
            partial.replace(path)
            files = sorted(path.parent.glob("*.json"), key=lambda file: file.stat().st_mtime)
            for oldest in files[:-KEPT_MAX]:
                oldest.unlink(missing_ok=True)


def _tokenizer_sha256(folder: Path) -> str:
    """Hash of the files that write a question: versions of one base may have their own."""
    paths = [folder / name for name in TOKENIZER_NAMES]
    files = [(path.name, file_sha256(path)) for path in paths if path.is_file()]
    return _sha256(msgspec.json.encode(files))


def _asked(prompts: Sequence[str], tokens_max: int) -> dict[str, str]:
    return {"prompts": _sha256(msgspec.json.encode(list(prompts))), "tokens_max": str(tokens_max)}


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
