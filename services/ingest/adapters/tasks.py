"""What ingest and its worker process say to each other, as JSON files in a folder of their own."""

from typing import TypeAlias

from msgspec import Struct

from schemas.dataset import PrepareSpec
from services.ingest.ports import Checked, LocalBase, Packed

TASK_FILE = "task.json"
ANSWER_FILE = "answer.json"


class CheckTask(Struct, frozen=True, kw_only=True, tag="check"):
    path: str
    bases: tuple[LocalBase, ...]


class PrepareTask(Struct, frozen=True, kw_only=True, tag="prepare"):
    training: str
    validation: str | None
    base: LocalBase
    spec: PrepareSpec
    folder: str


class CheckAnswer(Struct, frozen=True, kw_only=True, tag="checked"):
    checked: Checked


class PrepareAnswer(Struct, frozen=True, kw_only=True, tag="packed"):
    packed: Packed


class Refusal(Struct, frozen=True, kw_only=True, tag="refused"):
    message: str


Task: TypeAlias = CheckTask | PrepareTask
Answer: TypeAlias = CheckAnswer | PrepareAnswer | Refusal
