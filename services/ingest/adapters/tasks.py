"""The messages between ingest and its worker process, exchanged as JSON files in a folder."""

from typing import TypeAlias

from msgspec import Struct

from schemas.dataset import PrepareSpec
from services.ingest.ports import CheckedFile, LocalBase
from tunery.data.preparing import UNSCREENED, PreparedManifest
from tunery.data.screening.screening import ScreeningPolicy

TASK_FILE = "task.json"
ANSWER_FILE = "answer.json"


class ScreeningTask(Struct, frozen=True, kw_only=True):
    """What rows are screened for.

    policy: what happens to each kind of content
    benchmarks: folder of the benchmarks that rows are compared with; None without
    """

    policy: ScreeningPolicy = UNSCREENED
    benchmarks: str | None = None


class CheckTask(Struct, frozen=True, kw_only=True, tag="check"):
    """Check a file under several base models. `rows_max`: more rows are an error."""

    path: str
    bases: tuple[LocalBase, ...]
    screen: ScreeningTask
    rows_max: int | None = None


class MixedFilePath(Struct, frozen=True):
    """A further file that trains, and its weight in millionths."""

    path: str
    weight_ppm: int


class PrepareTask(Struct, frozen=True, kw_only=True, tag="prepare"):
    """Prepare files for one base model.

    training, validation: paths of the files
    base: the base model
    spec: how they are prepared
    folder: the directory to write
    work: folder for intermediate results
    screen: what rows are screened for
    mixture: further files that train
    """

    training: str
    validation: str | None
    base: LocalBase
    spec: PrepareSpec
    folder: str
    work: str
    screen: ScreeningTask
    mixture: tuple[MixedFilePath, ...] = ()


class PreparedAnswer(Struct, frozen=True, kw_only=True, tag="prepared"):
    """The folder of a `PrepareTask` is complete. `reused`: it already existed."""

    manifest: PreparedManifest
    reused: bool


class RefusedAnswer(Struct, frozen=True, kw_only=True, tag="refused"):
    """The rows cannot be prepared; the message says why."""

    message: str


Task: TypeAlias = CheckTask | PrepareTask
Answer: TypeAlias = CheckedFile | PreparedAnswer | RefusedAnswer
