"""The hosts of a simulated process: ingest and registry as in production, but for work on rows."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from schemas.dataset import (
    FileRegistered,
    PreparationDue,
    Prepared,
    PrepareSpec,
    RecordPrepared,
    RecordValidation,
    Validation,
    prepared_folder,
    report_folder,
)
from schemas.topics import DATASET, MODEL, STREAMS
from services.ingest import effect as ingest
from services.ingest.app import DATASETS
from services.ingest.app import TODOS as FILE_WORK
from services.ingest.react import react_dataset
from services.registry import effect as registry
from services.registry.app import MODELS
from services.registry.app import TODOS as MODEL_WORK
from services.registry.react import react_model
from simulator.artifacts.plan import ArtifactsPlan, ArtifactsSize
from simulator.control_plane.samples import PREPARED, tokens
from simulator.engine.cluster import Cluster, Process
from simulator.engine.sim_log import SimLog
from tunery.runtime.blobs.abstract import Blobs
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projector
from tunery.runtime.hosts.reactor import Reactor
from tunery.runtime.journal.ports import HostLimits
from tunery.runtime.verbs import Effect, Send

LEASE_MS: Final = 9_000  # of a row: work is short here
WORKERS: Final = ingest.Workers(2, 2)
NOWHERE: Final = Path("/nonexistent")  # rows are read by `SimWorkbench`


def sha_of(*parts: object) -> str:
    return sha256(repr(parts).encode()).hexdigest()


def is_rotten(log: SimLog, plan: ArtifactsPlan, what: str) -> bool:
    """True if the plan's chance makes `what` unusable. Deterministic for each seed and `what`."""
    return log.chance(f"rotten {what}").randrange(100) < plan.rotten


def version_of(sources: tuple[str, ...], spec: PrepareSpec, weights: tuple[int, ...]) -> str:
    """Return the simulated version of a prepared cache: a hash of all inputs of its bytes."""
    return sha_of(sources, spec, weights)


class SimWorkbench:
    """Work on rows: it takes a moment, fails now and then, and depends on bytes alone."""

    def __init__(self, log: SimLog, plan: ArtifactsPlan, process: Process, blobs: Blobs) -> None:
        self._log, self._plan, self._process, self._blobs = log, plan, process, blobs

    async def check(self, file: FileRegistered, tenant: str, _: int = 1) -> Send:
        """The check of a file: every row of it is good, or none is."""
        content = file.content
        await self._blobs.get(content.blob, sha256=content.sha256)
        await self._work()
        good = not is_rotten(self._log, self._plan, content.sha256)
        folder = report_folder(tenant, file.file_id)
        report = await self._store(folder, f"report on {content.sha256}")
        validation = Validation(
            accepted=good,
            dialect="chat",
            rows=10,
            errors=0 if good else 10,
            warnings=0,
            tokens=(tokens(),) if good else (),
            report_blob=report[0],
        )
        if not good:
            self._log.broker.tally.add("rows refused")
        record = RecordValidation(file_id=file.file_id, validation=validation)
        return Send(DATASET.name, tenant, tenant, record)

    async def prepare(self, due: PreparationDue, tenant: str, _: int = 1) -> Send:
        """The cache of a pin's files, whose content names them."""
        mixed = [(other.blob, other.sha256) for other in due.mixture]
        read = [(due.training_blob, due.training_sha256), *mixed]
        if due.validation_blob is not None and due.validation_sha256 is not None:
            read.insert(1, (due.validation_blob, due.validation_sha256))
        for blob, sha in read:
            await self._blobs.get(blob, sha256=sha)
        await self._work()
        weights = tuple(other.weight_ppm for other in due.mixture)
        version = version_of(tuple(sha for _, sha in read), due.spec, weights)
        done = dict[str, str]()
        for part in ("train", "validation", "prompts"):
            folder = prepared_folder(tenant, due.prepare_id)
            stored = await self._store(folder, f"{part} of {version}")
            done[f"{part}_blob"], done[f"{part}_sha256"] = stored
        prepared = Prepared(**{**_fields(PREPARED), **done, "version": version})
        record = RecordPrepared(prepare_id=due.prepare_id, prepared=prepared)
        return Send(DATASET.name, tenant, tenant, record)

    async def _work(self) -> None:
        await self._process.port.sleep(int(self._process.rng.expovariate(1 / 400)))
        if self._log.broker.chance(self._plan.failures):
            self._log.broker.tally.add("check failed")
            raise OSError("the work ended early")

    async def _store(self, folder: str, text: str) -> tuple[str, str]:
        data = text.encode()
        sha = sha256(data).hexdigest()
        return (await self._blobs.put(f"{folder}{sha}", data)).key, sha


def _fields(part: Any) -> dict[str, Any]:
    return {name: getattr(part, name) for name in part.__struct_fields__}


async def _skip_work(*_: Any) -> None:
    """Work that jobs left is not stored here."""


def hosts(
    log: SimLog, plan: ArtifactsPlan, size: ArtifactsSize, cluster: Cluster, process: Process
) -> tuple[Host, ...]:
    """Owners and reactors in every process; projectors and effects in one of them."""
    files, models = process.runtime("ingest"), process.runtime("registry")
    bounds = HostLimits(
        standby=False,  # the scenario of the core has them
        idle_wait_ms=60_000,
        trim_every_ms=30_000,
        snapshot_every=size.snapshot_every,
        back_off_ms_max=4_000,
        retry_ms=500,
        commit_every_ms=2_000,
    )

    def owner(runtime: Any, aggregate: Any) -> AggregateHost[Any]:
        return AggregateHost(
            runtime, aggregate, owner=process.name, fresh_id=process.fresh_id, limits=bounds
        )

    every: tuple[Host, ...] = (
        owner(files, DATASETS),
        owner(models, MODELS),
        Reactor(files, DATASET, react_dataset, streams=STREAMS, limits=bounds),
        Reactor(models, MODEL, react_model, streams=STREAMS, limits=bounds),
    )
    if any(isinstance(host, EffectHost) for other in cluster.processes for host in other.hosts):
        return every
    bench = SimWorkbench(log, plan, process, files.blobs)
    rows: Any = (files.blobs, files.seal, bench, None, NOWHERE, WORKERS)
    effects: tuple[Effect[Any], ...] = (
        replace(ingest.validate(*rows), run=bench.check),
        replace(ingest.prepare(*rows), run=bench.prepare),
        ingest.erase(files.blobs, LEASE_MS),
        ingest.erase_tenant(files.blobs, files.sender),
    )
    publishing: tuple[Effect[Any], ...] = (
        registry.publish(models.blobs, models.seal),
        registry.erase(models.blobs),
        replace(registry.erase_work(models.blobs, models.store), run=_skip_work),
    )
    return (
        *every,
        Projector(files, FILE_WORK),
        Projector(models, replace(MODEL_WORK, streams=(MODEL,))),
        EffectHost(files, [replace(effect, row_lease_ms=LEASE_MS) for effect in effects]),
        EffectHost(models, [replace(effect, row_lease_ms=LEASE_MS) for effect in publishing]),
    )
