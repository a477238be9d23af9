"""One job that goes to MLflow: given rows, when passes run, then a server over a real socket has
its run. A real MLflow is written to by `make test-clients`.
"""

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from schemas.envelope import Message
from schemas.integrations import (
    Integration,
    MirrorReport,
    MirrorReported,
    RecordMirror,
    TrackingServer,
    TrackingServerRemoved,
    TrackingServerSet,
)
from schemas.job import JobEnded, JobSubmitted
from schemas.telemetry import Step
from schemas.topics import JOB, TELEMETRY
from services.notifier.adapters.http import HttpOutbound
from services.notifier.app import DELIVERIES
from services.notifier.figures import TELEMETRY_ROWS, changes_of
from services.notifier.mirroring import FOLLOW_MS, OF_TENANT_MAX, mirror
from services.notifier.project import project
from tests.unit.services.gateway.jobs.job_events import SUBMITTED
from tests.unit.services.headers import header
from tests.unit.services.notifier.tracking_server import (
    SLOW,
    TrackingServerStandIn,
    tracking_server,
)
from tunery.platform.memory_servers import memory_servers
from tunery.platform.ports import Runtime
from tunery.platform.seal.model_names import logged_name
from tunery.runtime.bus.abstract import Record
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.reader import Position
from tunery.runtime.store.abstract import RowBatch, Store
from tunery.runtime.verbs import Change, GoOnLater, RetryLater, Send

CREATED, ENDED = 1_000_000, 2_000_000
PARTITION = partition_of(b"ftjob-1")
END = JobEnded(
    job_id="ftjob-1",
    outcome="succeeded",
    model_id="ft:tiny:1",
    failure=None,
    trained_tokens=300,
    billable_gpu_ms=5_000,
    lost_gpu_ms=0,
    released_gpu_ms=0,
    created_at=CREATED,
    integrations=("mlflow",),
)


def step(number: int) -> Step:
    return Step(
        tenant="acme",
        job_id="ftjob-1",
        attempt=1,
        step=number,
        total_steps=9,
        loss=3.0 - number,
        accuracy=0.5,
        grad_norm=None,
        learning_rate=0.001,
        tokens=100 * number,
        elapsed_ms=10,
        tokens_per_s=50.0,
    )


@dataclass
class World:
    runtime: Runtime
    outbound: HttpOutbound
    offsets: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """As a process that knows nothing of what others did."""
        self.effect = mirror(self.runtime, self.outbound)

    @property
    def submitted(self) -> JobSubmitted:
        settings = self.runtime.seal.seal("acme", '{"experiment":"lamps"}', "integration")
        integration = Integration(kind="mlflow", settings=settings)
        return replace(SUBMITTED, spec=replace(SUBMITTED.spec, integrations=(integration,)))

    async def happened(self, stream: str, event: Message, at: int = CREATED) -> None:
        await self._commit(DELIVERIES.name, (stream, 0), project(header(stream, at=at), event))

    async def trained(self, *steps: int) -> None:
        """Put steps on the log, and read them."""
        for number in steps:
            await self.said_by_node(step(number))
            await self.read(step(number))

    async def read(self, message: Step) -> None:
        """Read a step as the next record of telemetry."""
        value, at = msgspec.json.encode(message), CREATED + 1_000 * message.step
        record = Record(PARTITION, message.step, at, b"ftjob-1", value)
        partition = TELEMETRY_ROWS.partitions[PARTITION]
        await self._commit(TELEMETRY_ROWS.name, partition, changes_of(record))

    async def said_by_node(self, message: Step) -> None:
        """Put a step on the log, without reading it."""
        value = msgspec.json.encode(message)
        await self.runtime.log.send(TELEMETRY.name, b"ftjob-1", value)

    async def _commit(
        self, projection: str, partition: tuple[str, int], changes: Sequence[Change]
    ) -> None:
        before = self.offsets.get(projection + partition[0], 0)
        self.offsets[projection + partition[0]] = before + 1
        version = DELIVERIES.version if projection == DELIVERIES.name else TELEMETRY_ROWS.version
        batch = RowBatch(
            projection, version, partition, before, Position(before + 1), tuple(changes)
        )
        await self.runtime.store.commit(batch)

    async def set_server(self, server: TrackingServerStandIn) -> None:
        seal = self.runtime.seal.seal
        named = TrackingServer(
            url=seal("acme", server.url, "url"),
            authorization=seal("acme", "Bearer t0p-secret", "authorization"),
        )
        await self.happened("account", TrackingServerSet(server=named))

    async def run(self) -> Send | Exception | None:
        """One pass: the outcome, or what it raises."""
        try:
            return await self.effect.run(self.submitted, "acme")
        except (GoOnLater, RetryLater) as raised:
            return raised

    async def said(self) -> list[MirrorReport]:
        """What was sent to `job`."""
        reports = []
        for partition in range(8):
            first, end = await self.runtime.log.bounds(JOB.commands.name, partition)
            reader = await self.runtime.log.reader(JOB.commands.name, {partition: first})
            while first < end:
                for record in await reader.poll(50, 100):
                    reports.append(msgspec.json.decode(record.value)["body"]["report"])
                    first = record.offset + 1
            await reader.close()
        return [msgspec.convert(report, MirrorReport) for report in reports]


@asynccontextmanager
async def a_world(
    *, allow_private: bool = True, store: Store | None = None, timeout_ms: int = 60_000
) -> AsyncIterator[World]:
    """A notifier with a job that asks for MLflow. store: None: in memory."""
    runtime = (await memory_servers()).runtime("notifier")
    if store is not None:
        runtime = dataclasses.replace(runtime, store=store)
    await runtime.store.ensure(DELIVERIES.described())
    await runtime.store.ensure(TELEMETRY_ROWS.stored())
    outbound = HttpOutbound(allow_private=allow_private, timeout_ms=timeout_ms)
    world = World(runtime, outbound)
    await world.happened("job", world.submitted)
    yield world
    await outbound.close()


async def test_a_job_is_followed_and_ends_with_its_outcome() -> None:
    server = await follow_a_job()
    assert server.steps() == [1, 2, 3]
    assert {head["authorization"] for head in server.headers} == {"Bearer t0p-secret"}


async def follow_a_job(store: Store | None = None) -> TrackingServerStandIn:
    """The server that has the run of a job of three steps."""
    async with a_world(store=store) as world, tracking_server() as server:
        await world.set_server(server)
        first = await world.run()
        assert isinstance(first, GoOnLater)
        assert (first.delay_ms, server.experiments) == (FOLLOW_MS, ["lamps"])
        assert server.parameters["method"] == "supervised"
        assert server.parameters["n_epochs"] == "2"
        await world.trained(1, 2)
        assert isinstance(await world.run(), GoOnLater)
        assert server.steps() == [1, 2]
        asked = server.requests
        assert isinstance(await world.run(), GoOnLater)
        assert server.requests == asked, "there was nothing to write"
        await world.said_by_node(step(3))
        name = "ft:tiny:acme:faq:12345678"
        logged = logged_name(world.runtime.seal, "acme", name)
        await world.happened("job", replace(END, model_id=logged), ENDED)
        assert isinstance(await world.run(), GoOnLater)
        assert "tunery.status" not in server.tags(), "its last step was not read yet"
        await world.read(step(3))
        sent = await world.run()
        assert isinstance(sent, Send)
        assert sent.body == RecordMirror(
            job_id="ftjob-1", report=MirrorReport(kind="mlflow", status="written")
        )
        assert server.tags()["tunery.status"] == "succeeded"
        assert server.tags()["tunery.fine_tuned_model"] == name
        assert server.runs[0]["info"]["status"] == "FINISHED"
        return server


async def test_another_process_goes_on_after_the_last_step_of_the_run() -> None:
    async with a_world() as world, tracking_server() as server:
        await world.set_server(server)
        await world.trained(1, 2)
        await world.run()
        world.start()
        await world.trained(3)
        await world.run()
        world.start()
        await world.run()
        assert (len(server.runs), server.steps()) == (1, [1, 2, 3])


async def test_figures_of_an_outage_are_written_after_it_and_it_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with (
        a_world(timeout_ms=3_000) as world,
        tracking_server(500, 401, SLOW) as server,
    ):
        await world.set_server(server)
        await world.trained(*range(1, 500))
        for why in ("refused 500", "refused 401", "unreachable"):
            failed = await world.run()
            assert isinstance(failed, RetryLater)
            assert str(failed) == why
            (report, *_) = await world.said()
            await world.happened("job", MirrorReported(job_id="ftjob-1", report=report))
        assert await world.said() == [
            MirrorReport(kind="mlflow", status="failing", cause="refused", http_status=500)
        ]
        assert isinstance(await world.run(), GoOnLater)
        assert server.steps() == [*range(1, 500)]
    said = "\n".join(record.getMessage() for record in caplog.records if "tunery" in record.name)
    assert "t0p-secret" not in said
    assert "127.0.0.1" not in said


async def test_many_steps_are_written_in_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.notifier.mirroring.PASS_STEPS_MAX", 200)
    async with a_world() as world, tracking_server() as server:
        await world.set_server(server)
        await world.trained(*range(1, 500))
        delays = [await world.run() for _ in range(2)]
        assert [done.delay_ms for done in delays if isinstance(done, GoOnLater)] == [0, FOLLOW_MS]
        assert server.steps() == [*range(1, 500)]


async def test_security_a_private_address_is_not_called() -> None:
    async with a_world(allow_private=False) as world, tracking_server() as server:
        await world.set_server(server)
        assert str(await world.run()) == "address_not_allowed"
        assert server.requests == 0


async def test_a_removed_server_is_retried_and_then_given_up() -> None:
    async with a_world() as world, tracking_server() as server:
        await world.set_server(server)
        await world.happened("account", TrackingServerRemoved())
        assert str(await world.run()) == "no_server"
        assert world.effect.exhausted is not None
        sent = world.effect.exhausted(world.submitted, "acme", "refused 403")
        assert sent.body == RecordMirror(
            job_id="ftjob-1",
            report=MirrorReport(kind="mlflow", status="gave_up", cause="refused", http_status=403),
        )


@pytest.mark.parametrize("said", [{"hello": "world"}, "hello", {"experiment": None}])
async def test_a_server_that_is_not_mlflow_is_named(
    said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_world() as world, tracking_server() as server:
        monkeypatch.setattr(server, "_answer", lambda *_: (200, said))
        await world.set_server(server)
        assert str(await world.run()) == "failed"
        assert [report.cause for report in await world.said()] == ["failed"]


async def test_a_slow_server_holds_up_jobs_of_its_tenant_alone() -> None:
    async with a_world(timeout_ms=3_000) as world:
        assert world.effect.of_tenant_max == OF_TENANT_MAX
        assert world.effect.concurrency > 2 * OF_TENANT_MAX
        async with tracking_server(*[SLOW] * 9) as slow, tracking_server() as fast:
            await world.set_server(slow)
            waiting = [asyncio.create_task(world.run()) for _ in range(OF_TENANT_MAX)]
            while slow.requests < OF_TENANT_MAX:  # noqa: ASYNC110  # a count
                await asyncio.sleep(0.01)
            await world.set_server(fast)
            assert isinstance(await world.run(), GoOnLater)
            assert not any(task.done() for task in waiting)
            assert {str(failure) for failure in await asyncio.gather(*waiting)} == {"unreachable"}
