"""What ingest and its worker process say to each other, as JSON files in a folder of their own."""

from typing import TypeAlias

from msgspec import Struct

from schemas.dataset import PrepareSpec
from services.ingest.ports import Checked, LocalBase, Packed
from tunery.data.preparing import UNSCREENED
from tunery.data.screening.screening import ScreeningPolicy

TASK_FILE = "task.json"
ANSWER_FILE = "answer.json"


class Screen(Struct, frozen=True, kw_only=True):
    """What is looked for in rows, and the folder of benchmarks they are compared with."""

    policy: ScreeningPolicy = UNSCREENED
    benchmarks: str | None = None


class CheckTask(Struct, frozen=True, kw_only=True, tag="check"):
    path: str
    bases: tuple[LocalBase, ...]
    screen: Screen
    rows_max: int | None = None


class PrepareTask(Struct, frozen=True, kw_only=True, tag="prepare"):
    training: str
    validation: str | None
    base: LocalBase
    spec: PrepareSpec
    folder: str
    work: str
    screen: Screen


class CheckAnswer(Struct, frozen=True, kw_only=True, tag="checked"):
    checked: Checked


class PrepareAnswer(Struct, frozen=True, kw_only=True, tag="packed"):
    packed: Packed


class Refusal(Struct, frozen=True, kw_only=True, tag="refused"):
    message: str


Task: TypeAlias = CheckTask | PrepareTask
Answer: TypeAlias = CheckAnswer | PrepareAnswer | Refusal
