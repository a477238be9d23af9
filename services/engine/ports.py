"""Ports of the engine: files of adapters and models, and what answers with them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from tunery.work.engine import EngineModel, Question, Reply

#: takes a part of an answer; returns whether more of it is wanted
Say: TypeAlias = Callable[[Reply], bool]


# not frozen: the standard library sets tracebacks on exceptions as they travel
@dataclass(eq=False)
class Refusal(Exception):
    """A question that is not answered; `code` is one of `tunery.work.engine`."""

    code: str
    message: str


@dataclass(frozen=True)
class WeightFiles:
    """The files of a model in the engine's format."""

    folder: Path  # folder of the base model, with its tokenizer and chat template
    base: Path
    adapter: Path | None  # None: the base model itself
    context_length: int  # tokens of the longest sequence
    tokenizer: Path | None = None  # the version's own; None: the base model's


class AdapterFiles(Protocol):
    async def get_file(self, key: str, path: Path, *, sha256: str | None = None) -> object:
        """Copy a file of an adapter. Raises BlobError; OSError."""


class Weights(Protocol):
    async def fetch(self, model: EngineModel) -> WeightFiles:
        """Verify and convert the files of a model, or find them converted.

        Raises Refusal; BlobError.
        """


class LoadedModel(Protocol):
    def answer(self, question: Question, say: Say) -> None:
        """Send the answer in parts, the last of which ends or refuses it; blocks until then.

        Each part has the tokens spent so far: they are counted, also where the client leaves early.
        When `say` returns False the answer stops without an end.
        """

    def close(self) -> None:
        """Free the memory."""


class ModelLoader(Protocol):
    def load(self, files: WeightFiles) -> LoadedModel:
        """Load a model; blocks. Raises Refusal."""


class ReconciledLoader(ModelLoader, Protocol):
    """A loader whose models are in the memory of other processes, which may lose them."""

    def reconcile(self) -> None:
        """Reload missing adapters, and free those that are no longer wanted; blocks."""
