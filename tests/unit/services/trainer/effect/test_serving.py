"""A replica under a lease: what its process is given, and where gateways reach it."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from schemas.training import ServeWork
from services.engine.host import EngineHost
from services.engine.loaded_models import LoadedModels
from services.engine.meter import AnswerMeter
from services.gateway.serving_pools.engine_connection import ask_over
from services.gateway.serving_pools.replicas import connect
from services.trainer.effect.replica_answers import ReplicaAnswers
from services.trainer.effect.serving import Serving
from services.trainer.settings import TrainerSettings
from tests.unit.services.engine.memory_engine import MemoryEngine, question
from tests.unit.services.trainer.domain.test_evolve import grant
from tests.unit.services.trainer.effect.test_evaluation import evaluation
from tunery.platform.memory_servers import MemoryServers
from tunery.runtime.watchdog import wait_forever
from tunery.work.engine import AnswerEnded, EngineReply
from tunery.work.events import ReplicaAlive, ReplicaReady
from tunery.work.exits import WorkError
from tunery.work.replica import ReplicaEndpoint, ReplicaSpec, decode_endpoint, decode_replica_spec

WORK = ServeWork(serving_pool_id="spool-1", base_id="tiny", base_sha256="5" * 64, base_path="/base")


@dataclass
class Replica:
    """A lease whose process is an engine in this one."""

    program: Serving
    spec: ReplicaSpec
    servers: MemoryServers
    engine: MemoryEngine
    host: EngineHost
    folder: Path

    async def endpoint(self) -> ReplicaEndpoint:
        started = await self.program.handle(ReplicaReady())
        assert started is not None
        assert started.endpoint is not None
        return decode_endpoint(
            self.servers.runtime("gateway").seal.open(started.endpoint, "endpoint")
        )

    async def said(self, endpoint: ReplicaEndpoint, text: str = "one two") -> list[EngineReply]:
        reader, writer = await connect(endpoint)
        writer.write(f"{endpoint.secret}\n".encode())
        return [reply async for reply in ask_over(reader, writer, question("a", text))]


@pytest.fixture
async def replica(tmp_path: Path):  # type: ignore[no-untyped-def]  # of a generator
    folder = tmp_path / "node" / "leases" / "1"
    folder.mkdir(parents=True)
    known, servers = await evaluation(tmp_path, 0)
    settings = TrainerSettings(id="a", threads=2, serve_module="services.engine.replica")
    answers = ReplicaAnswers(
        tmp_path / "answers", servers.runtime("trainer").sender, servers.clock, wait_forever
    )
    program = Serving(grant(), WORK, known.tools, settings, answers)
    arguments = await program.prepare(folder)
    assert arguments[:2] == ("-m", "services.engine.replica")
    spec = decode_replica_spec(Path(arguments[2]).read_bytes())
    engine = MemoryEngine()
    models = LoadedModels(engine, engine, models_max=2, answers_max=4)
    host = EngineHost(models, Path(spec.socket), AnswerMeter(Path(spec.answers_dir)))
    running = asyncio.create_task(host.run())
    await host.ready()
    try:
        yield Replica(program, spec, servers, engine, host, tmp_path)
    finally:
        await program.close()
        running.cancel()
        await asyncio.wait((running,))


async def test_a_gateway_is_answered_over_tls_by_the_process(replica: Replica) -> None:
    endpoint = await replica.endpoint()
    assert (await replica.said(endpoint))[-1] == AnswerEnded("stop", 2, 2)
    assert await replica.program.handle(ReplicaAlive()) is None
    assert replica.spec.models_dir == str(replica.folder / "node" / "engine")
    assert not list(Path(replica.spec.socket).parent.glob("*.pem")), "the key is not left on disk"


async def test_a_node_without_a_program_for_replicas_says_so(replica: Replica) -> None:
    plain = Serving(
        grant(), WORK, replica.program.tools, TrainerSettings(), replica.program._answers
    )
    with pytest.raises(WorkError, match="no program for replicas") as failed:
        await plain.prepare(replica.folder)
    assert failed.value.cause == "bad_node"
    with pytest.raises(FileNotFoundError):
        await plain.result()
    with suppress(OSError):
        await plain.close()
