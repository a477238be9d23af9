"""Outline of what runs under a lease: inputs, the process, its results. One subclass for each role.

Trainings, evaluations and replicas have the same outline: fetch the inputs, write a spec, start a
module on it, follow its events, store the results.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from schemas.sealed import REDACTED, Sealed
from schemas.telemetry import LogLine, Progress, Step
from schemas.training import AttemptStart, BlobFile, Result
from schemas.units import Ms
from services.trainer.domain.state import Grant
from services.trainer.effect.gang import Gang
from services.trainer.effect.guarding import AnswerGuard
from services.trainer.effect.judging import PairJudge
from services.trainer.effect.scores import ScoreRelay
from services.trainer.figures import NodeMeter
from services.trainer.ports import (
    NO_ACCESS,
    Access,
    ChatCompletions,
    MemoryKills,
    ProcessLauncher,
    Reporting,
)
from services.trainer.settings import TrainerSettings
from tunery.confinement.taking import below, opened_within
from tunery.graders.grader import asks_models, parse
from tunery.platform.ports import Runtime
from tunery.ranks.launching import RankLayout
from tunery.runtime.backoff import Backoff, retry
from tunery.runtime.blobs.abstract import BlobsUnavailable, Stored, blob_key
from tunery.runtime.clock import Clock
from tunery.work.codec import encode_spec
from tunery.work.events import AnyWorkEvent, FileDigest
from tunery.work.exits import WorkError
from tunery.work.replica import ReplicaSpec
from tunery.work.session import SessionSpec
from tunery.work.spec import ScoreSpec, TrainSpec, VariantsSpec

OUTAGE_MS_MAX: Final[Ms] = 120_000
RETRIES: Final = Backoff(200, 5_000)
T = TypeVar("T")


async def fetch(runtime: Runtime, key: str, path: Path, sha256: str) -> None:
    """Copy a blob to a file.

    Raises BlobMissing, BlobCorrupt; BlobsUnavailable after OUTAGE_MS_MAX; OSError.
    """

    async def get() -> Stored:
        return await runtime.blobs.get_file(key, path, sha256=sha256)

    await retry_while_unavailable(runtime.clock, get)


async def upload(runtime: Runtime, grant: Grant, kind: str, path: Path, sha256: str) -> Stored:
    """Store a file of an attempt: the key has the job, the attempt and the content's hash.

    Raises BlobCorrupt; BlobsUnavailable after OUTAGE_MS_MAX; FileNotFoundError.
    """
    key = blob_key(grant.tenant, f"{kind}/{grant.job_id}/{grant.attempt}", sha256)

    async def put() -> Stored:
        return await runtime.blobs.put_file(key, path, sha256=sha256)

    return await retry_while_unavailable(runtime.clock, put)


async def retry_while_unavailable(clock: Clock, operation: Callable[[], Awaitable[T]]) -> T:
    """Raises what the operation does, BlobsUnavailable only after OUTAGE_MS_MAX."""
    return await retry(
        operation,
        (BlobsUnavailable,),
        clock=clock,
        backoff=RETRIES,
        elapsed_ms_max=OUTAGE_MS_MAX,
    )


@dataclass(frozen=True)
class Tools:
    """Dependencies that all leases of one agent share."""

    runtime: Runtime
    launcher: ProcessLauncher
    reports: Reporting
    incarnation: str  # id of this run of the agent; part of each report
    memory_kills: MemoryKills  # the kernel's count of processes killed for lack of memory
    # client of models that score for graders; None: none is configured
    scores: ChatCompletions | None = None
    judge: PairJudge | None = None  # compares answers; None: none is configured
    # says which answers harm and which refuse; None: none is configured
    guard: AnswerGuard | None = None
    device_names: tuple[str, ...] = ()  # names of the node's devices, in the order of their numbers
    meter: NodeMeter = field(default_factory=NodeMeter)  # counts the progress of trainings


class Program(ABC):
    """One role's part of a lease."""

    module: str  # module that the Python interpreter is started with

    def __init__(self, grant: Grant, tools: Tools, settings: TrainerSettings) -> None:
        self.grant, self.tools, self.settings = grant, tools, settings
        self._relay: ScoreRelay | None = None
        self.folder = Path()
        self.access = NO_ACCESS
        self.gang: Gang | None = None

    async def prepare(self, folder: Path) -> tuple[str, ...]:
        """Fetch the inputs and write the spec; the arguments after the interpreter.

        Then `access` is what the process needs besides the folder.
        Raises BlobMissing, BlobCorrupt, BlobsUnavailable, OSError.
        """
        path, self.folder = folder / "spec.json", folder
        spec = await self.write_inputs(folder)
        path.write_bytes(encode_spec(spec))
        self.access = replace(access_of(spec), job=f"{self.grant.tenant}/{self.grant.job_id}")
        return ("-m", self.module, str(path))

    @property
    def leads(self) -> bool:
        """True if this member of the lease reports for all of them."""
        return self.gang is None or self.gang.leads

    @abstractmethod
    async def write_inputs(
        self, folder: Path
    ) -> TrainSpec | VariantsSpec | SessionSpec | ScoreSpec | ReplicaSpec:
        """Fetch the inputs into a folder; the spec that names them. Raises as `prepare` does."""

    @abstractmethod
    async def handle(self, event: AnyWorkEvent) -> AttemptStart | None:
        """Take one event of the process; a report when it is the one that work has begun."""

    @abstractmethod
    async def result(self) -> Result:
        """Store what the finished process left, and name it.

        Raises FileNotFoundError when it left nothing; BlobCorrupt, BlobsUnavailable.
        """

    async def fetch(self, key: str, path: Path, sha256: str) -> None:
        """Copy a blob to a file. Raises BlobMissing, BlobCorrupt, BlobsUnavailable, OSError."""
        await fetch(self.tools.runtime, key, path, sha256)

    async def upload(self, kind: str, folder: Path, file: FileDigest) -> BlobFile:
        """Store a file of the process under this attempt.

        folder: path that the process reports, below the folder of the lease
        Raises FileNotFoundError, BlobCorrupt, BlobsUnavailable; NotTaken for what is no such file.
        """
        with opened_within(self.folder, below(folder, file.name)) as path:
            stored = await upload(self.tools.runtime, self.grant, kind, path, file.sha256)
        return BlobFile(name=file.name, blob=stored.key, sha256=stored.sha256, bytes=stored.bytes)

    def open_prompts(self, sealed: Sealed | None) -> tuple[str, ...]:
        """The tenant's prompts; none when its key is gone."""
        text = REDACTED if sealed is None else self.tools.runtime.seal.open(sealed, "prompts")
        return () if text == REDACTED else msgspec.json.decode(text, type=tuple[str, ...])

    def open_json(self, sealed: Sealed | None) -> str | None:
        """The job's grader or measures; None where it has none, or its tenant's key is gone."""
        opened = self.tools.runtime.seal.open
        text = REDACTED if sealed is None else opened(sealed, "grader", "measures")
        return None if text == REDACTED else text

    async def open_scores(self, folder: Path, grader: str | None) -> str | None:
        """Ask models for the process as its grader says; the socket, None: it names no model.

        Raises WorkError where this node has no endpoint to ask, and OSError.
        """
        parsed = None if grader is None else parse(msgspec.json.decode(grader))
        if parsed is None or not asks_models(parsed):
            return None
        if self.tools.scores is None:
            message = "the grader asks a model, and this node has no endpoint for scores"
            raise WorkError("bad_node", message, "Tell the operator: set TUNERY_NODE_SCORE_URL.")
        self._relay = ScoreRelay(self.tools.scores, parsed)
        return str(await self._relay.open(folder))

    async def close(self) -> None:
        """Ask and count nothing more for the process, which has ended."""
        self.tools.meter.end(self.grant.token.lease)
        if self._relay is not None:
            await self._relay.close()
        if self.gang is not None:
            await self.gang.close()

    async def report(self, record: Step | LogLine | Progress) -> None:
        """Offer telemetry of this lease; it may get lost."""
        await self.tools.reports.telemetry(record)


def access_of(
    spec: TrainSpec | VariantsSpec | SessionSpec | ScoreSpec | ReplicaSpec,
) -> Access:
    """Return the access that a spec's process needs. Makes its shared folders. Raises OSError."""
    if isinstance(spec, VariantsSpec | SessionSpec):
        return access_of(spec.training)
    named: tuple[str | None, ...]
    match spec:
        case TrainSpec():
            base, named = spec.base_dir, (spec.reference_dir, spec.proof_dir)
        case ScoreSpec():
            base, named = spec.base_dir, (spec.base_scores_dir,)
        case ReplicaSpec():
            base, named = spec.base.base_path, (spec.models_dir, spec.answers_dir)
    shared = tuple(Path(name) for name in named if name is not None)
    for path in shared:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if isinstance(spec, ReplicaSpec):
        models = Path(spec.models_dir)  # its converter makes links to the files of the base
        return Access((Path(base),), shared, serves=True, links=(models,))
    scores = None if spec.score_socket is None else Path(spec.score_socket)
    if isinstance(spec, TrainSpec):
        here = range(spec.ranks)
        layout = RankLayout(spec.ranks, here, devices=spec.devices)
        is_alone = spec.ranks == 1 and spec.engine.name == "single"
        return Access((Path(base),), shared, scores, ranks=None if is_alone else layout)
    return Access((Path(base),), shared, scores)
