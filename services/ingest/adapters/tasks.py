"""The messages between ingest and its worker process, exchanged as JSON files in a folder."""

from typing import TypeAlias

from msgspec import Struct

from schemas.dataset import PrepareSpec
from services.ingest.ports import CheckedFile, LocalBase
from tunery.data.preparing import UNSCREENED, PreparedManifest
from tunery.data.screening.screening import ScreeningPolicy
from tunery.work.own_chat import OwnChat

TASK_FILE = "task.json"
ANSWER_FILE = "answer.json"


class ScreeningTask(Struct, frozen=True, kw_only=True):
    """Screening options of a task."""

    policy: ScreeningPolicy = UNSCREENED  # what happens to each kind of content
    # folder of the benchmarks that rows are compared with; None without
    benchmarks: str | None = None


class CheckTask(Struct, frozen=True, kw_only=True, tag="check"):
    """Check a file under several base models."""

    path: str
    bases: tuple[LocalBase, ...]
    screen: ScreeningTask
    rows_max: int | None = None  # more rows are an error


class MixedFilePath(Struct, frozen=True):
    """A further file that trains, and its weight in millionths."""

    path: str
    weight_ppm: int


class PrepareTask(Struct, frozen=True, kw_only=True, tag="prepare"):
    """Prepare files for one base model."""

    # training, validation: paths of the files
    training: str
    validation: str | None
    base: LocalBase  # the base model
    spec: PrepareSpec  # how they are prepared
    folder: str  # the directory to write
    work: str  # folder for intermediate results
    screen: ScreeningTask  # what rows are screened for
    mixture: tuple[MixedFilePath, ...] = ()  # further files that train
    chat: OwnChat | None = None  # None: the base model's template and end tokens


class PreparedAnswer(Struct, frozen=True, kw_only=True, tag="prepared"):
    """The folder of a `PrepareTask` is complete."""

    manifest: PreparedManifest
    reused: bool  # it already existed


class RefusedAnswer(Struct, frozen=True, kw_only=True, tag="refused"):
    """The rows cannot be prepared; the message says why."""

    message: str


Task: TypeAlias = CheckTask | PrepareTask
Answer: TypeAlias = CheckedFile | PreparedAnswer | RefusedAnswer
