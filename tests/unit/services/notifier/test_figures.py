"""Telemetry that becomes rows: steps of jobs with MLflow, signed by the node they name."""

import dataclasses

import msgspec
from msgspec.structs import replace

from schemas.telemetry import LogLine, Step
from schemas.topics import TELEMETRY
from services.notifier.figures import MirroredSteps, changes_of
from tests.unit.services.notifier.test_mirroring import a_world, step
from tunery.platform.bus.sender_keys import keys_of
from tunery.platform.ports import Runtime
from tunery.runtime.bus.abstract import Record
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.verbs import Upsert

SECRET = b"secret of commands in the tests!"


class Ready(Host):
    """A host that is up to date."""

    name = "ready"

    async def ready(self) -> None:
        """At once."""

    async def run(self) -> None:
        """Nothing to do."""


def record(message: Step | LogLine, sender: str | None = None) -> Record:
    value = msgspec.json.encode(message)
    if sender is not None:
        value = keys_of(SECRET, sender).sign(TELEMETRY.name, value)
    return Record(0, 7, 5_000, b"ftjob-1", value)


async def counted(runtime: Runtime, *records: Record) -> list[Record]:
    return await MirroredSteps(runtime, Ready()).counted(records)


def test_a_step_is_a_row_of_its_block_and_the_newest_of_its_job() -> None:
    of_step, newest = changes_of(record(step(401)))
    assert isinstance(of_step, Upsert)
    assert of_step.key == {"tenant": "acme", "job_id": "ftjob-1", "block": 2, "step": 401}
    assert of_step.values["document"]["train_loss"] == -398.0
    assert newest.values == {"step": 401}


def test_what_is_no_step_is_no_row() -> None:
    line = LogLine(tenant="acme", job_id="ftjob-1", attempt=1, level="info", text="hello")
    assert changes_of(record(line)) == ()
    assert changes_of(Record(0, 0, 0, b"", b"not JSON")) == ()


async def test_steps_of_jobs_that_do_not_go_to_mlflow_do_not_count() -> None:
    async with a_world() as world:
        ours, other = record(step(1)), record(replace(step(1), job_id="ftjob-2"))
        foreign = record(replace(step(1), tenant="globex"))
        assert await counted(world.runtime, ours, other, foreign) == [ours]


async def test_security_steps_that_another_node_has_signed_do_not_count() -> None:
    async with a_world() as world:
        runtime = dataclasses.replace(world.runtime, keys=keys_of(SECRET, "notifier"))
        own = record(replace(step(1), node_id="a"), "node.a")
        others = record(replace(step(1), node_id="a"), "node.b")
        unsigned = record(replace(step(1), node_id="a"))
        assert await counted(runtime, own, others, unsigned) == [own]
