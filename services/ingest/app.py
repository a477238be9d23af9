"""Composition root: builds the hosts of ingest and chooses the adapters."""

import asyncio
from collections.abc import Sequence

from schemas.topics import DATASET, MODEL, SESSION, STREAMS
from services.ingest.adapters.process_workbench import ProcessWorkbench
from services.ingest.adapters.tasks import ScreeningTask
from services.ingest.domain.decide import decide
from services.ingest.domain.evolve import evolve
from services.ingest.domain.expiry import next_expiry
from services.ingest.domain.state import INITIAL, DatasetsByTenant
from services.ingest.effect import Workers, erase, erase_tenant, prepare, validate
from services.ingest.ports import LocalBase
from services.ingest.project import BASES, DDL, project
from services.ingest.react import react_dataset
from services.ingest.scratch import sweep
from services.ingest.settings import IngestSettings
from tunery.data.screening.benchmarks import folder_in
from tunery.data.screening.operator_models import ModelUnusable
from tunery.platform.confining import confinement_of
from tunery.platform.ports import Runtime
from tunery.platform.settings import SettingsError, load
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.digests import Digests
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projection, Projector
from tunery.runtime.hosts.reactor import Reactor
from tunery.runtime.verbs import Aggregate, deadlines_by_key

DATASETS = Aggregate(
    stream=DATASET,
    fold_version=9,  # 9: preparations by their work; 8: equal work of preparations; 7: erasure
    initial=INITIAL,
    state_type=DatasetsByTenant,
    decide=decide,
    evolve=evolve,
    deadlines=deadlines_by_key(DatasetsByTenant.keys, next_expiry),
)
TODOS = Projection(
    name="ingest",
    version=1,
    streams=(DATASET, MODEL, SESSION),
    project=project,
    ddl=DDL,
    tables=(BASES,),
)


async def build(runtime: Runtime) -> Sequence[Host]:
    """Build the hosts. Raises `SettingsError` when a setting is invalid or a model is unusable."""
    settings = load(IngestSettings)
    scratch = settings.work_dir or runtime.settings.data_dir / "ingest"
    try:  # at start-up, rather than at the first file of a tenant
        await asyncio.to_thread(settings.policy.try_models)
    except ModelUnusable as error:
        raise SettingsError(f"TUNERY_INGEST_PERSONAL_MODEL, …_TOXICITY_MODEL: {error}") from error
    await asyncio.to_thread(sweep, scratch, settings.work_ms_max)
    benchmarks = settings.benchmarks_dir or folder_in(runtime.settings.data_dir)
    workbench = ProcessWorkbench(
        work_ms_max=settings.work_ms_max,
        memory_bytes_max=settings.memory_bytes_max,
        screen=ScreeningTask(policy=settings.policy, benchmarks=str(benchmarks)),
        confinement=await confinement_of(runtime),
        scratch=scratch,
        resting_max=settings.concurrency - 1,  # a place is left for who need not rest
    )

    async def bases() -> tuple[LocalBase, ...]:
        rows = await runtime.store.rows(BASES)
        return tuple(LocalBase(**row) for row in rows)

    workers = Workers(settings.concurrency, settings.of_tenant_max)
    effects = (
        validate(runtime.blobs, runtime.seal, workbench, bases, scratch, workers),
        prepare(runtime.blobs, runtime.seal, workbench, bases, scratch, workers),
        erase(runtime.blobs),
        erase_tenant(runtime.blobs, runtime.sender),
    )
    owner = AggregateHost(runtime, DATASETS)
    return (
        owner,
        Digests(runtime, (owner,)),
        Reactor(runtime, DATASET, react_dataset, streams=STREAMS),
        Projector(runtime, TODOS),
        EffectHost(runtime, effects),
    )
