"""Composition root: the only file of the service that names concrete parts."""

from collections.abc import Sequence

from schemas.topics import JOB, MODEL, STREAMS
from services.registry.domain.decide import decide
from services.registry.domain.evolve import evolve
from services.registry.domain.lifetime import next_erasure
from services.registry.domain.state import INITIAL, Registry
from services.registry.effect import erase, erase_work, publish
from services.registry.project import DDL, ENDED_JOBS, JOB_FILES, VERSION_JOBS, project
from services.registry.react import react_model
from tunery.platform.ports import Runtime
from tunery.platform.settings import SettingsError
from tunery.provenance.keys import KeyUnusable, load_key
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.digests import Digests
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projection, Projector
from tunery.runtime.hosts.reactor import Reactor
from tunery.runtime.verbs import Aggregate, deadlines_by_key

MODELS = Aggregate(
    stream=MODEL,
    fold_version=13,  # 13: erasure; 12: removed benchmarks; 11: benchmarks
    initial=INITIAL,
    state_type=Registry,
    decide=decide,
    evolve=evolve,
    deadlines=deadlines_by_key(lambda state: state.tenants, next_erasure),
)
TODOS = Projection(
    name="registry",
    version=2,  # 2: files of jobs
    streams=(JOB, MODEL),
    project=project,
    ddl=DDL,
    tables=(VERSION_JOBS, JOB_FILES, ENDED_JOBS),
)


async def build(runtime: Runtime) -> Sequence[Host]:
    """The hosts of the service. Raises SettingsError for a key that cannot sign."""
    try:
        key = load_key(runtime.settings.signing)
    except KeyUnusable as error:
        raise SettingsError(str(error)) from error
    owner = AggregateHost(runtime, MODELS)
    return (
        owner,
        Digests(runtime, (owner,)),
        Reactor(runtime, MODEL, react_model, streams=STREAMS),
        Projector(runtime, TODOS),
        EffectHost(
            runtime,
            (
                publish(runtime.blobs, runtime.seal, key),
                erase(runtime.blobs),
                erase_work(runtime.blobs, runtime.store),
            ),
        ),
    )
