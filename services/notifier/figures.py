"""Steps of the jobs that go to MLflow, as rows: what counts of the topic of telemetry."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from schemas.streams import agent_of, node_of
from schemas.telemetry import Step, Telemetry
from schemas.topics import TELEMETRY
from services.notifier.domain.mirrored import step_document
from services.notifier.project import MIRRORS, NEWEST_STEPS, STEPS, STEPS_DDL
from tunery.platform.ports import Runtime
from tunery.runtime.bus.abstract import Record
from tunery.runtime.bus.signing import Unproven
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.topic_reader import TopicReader, TopicRows, decoded
from tunery.runtime.telemetry.metrics import REJECTIONS
from tunery.runtime.verbs import Upsert

LOG: Final = logging.getLogger("tunery.notifier")
NAME: Final = "figures"
VERSION: Final = 1
BLOCK_STEPS: Final = 200  # steps of a job that are read at a time
_DECODER: Final[msgspec.json.Decoder[Telemetry]] = msgspec.json.Decoder(Telemetry)


@dataclass(frozen=True)
class StepTable:
    """Implements `StoredTable`: both tables of steps."""

    name: str

    def ddl(self) -> str:
        return STEPS_DDL


def changes_of(record: Record) -> tuple[Upsert, ...]:
    """Rows of one record. A step that a resumed attempt repeats replaces the earlier row."""
    message = decoded(record, _DECODER, "telemetry.record_skipped")
    if not isinstance(message, Step):
        return ()
    job = {"tenant": message.tenant, "job_id": message.job_id}
    key = {**job, "block": message.step // BLOCK_STEPS, "step": message.step}
    document = step_document(message, record.timestamp)
    return (
        Upsert(STEPS, key, {"document": document}),
        Upsert(NEWEST_STEPS, job, {"step": message.step}),
    )


TELEMETRY_ROWS: Final = TopicRows(
    NAME, VERSION, TELEMETRY, (StepTable(STEPS), StepTable(NEWEST_STEPS)), changes_of
)


class MirroredSteps:
    """Lets pass the steps of jobs that go to MLflow, which their nodes have signed.

    jobs: the host of the rows of these jobs. A step counts once they are up to date.
    """

    def __init__(self, runtime: Runtime, jobs: Host) -> None:
        self._runtime, self._jobs = runtime, jobs

    async def counted(self, records: Sequence[Record]) -> list[Record]:
        """Return the records of steps that a mirror needs and their node has signed. Raises
        StoreUnavailable.
        """
        await self._jobs.ready()
        mirrored: dict[tuple[str, str], bool] = {}
        counted = []
        for record in records:
            message = decoded(record, _DECODER, "telemetry.record_skipped")
            if not isinstance(message, Step):
                continue
            job = (message.tenant, message.job_id)
            if job not in mirrored:
                where = {"tenant": message.tenant, "job_id": message.job_id}
                mirrored[job] = bool(await self._runtime.store.rows(MIRRORS, where))
            if mirrored[job] and self._is_of_its_node(record, message):
                counted.append(record)
        return counted

    def _is_of_its_node(self, record: Record, step: Step) -> bool:
        """Return whether the step is signed by the node that it names, or cannot be checked."""
        keys = self._runtime.keys
        if not keys.can_check(TELEMETRY.name):
            return True
        try:
            sender = keys.sender_of(TELEMETRY.name, record.value, record.timestamp)
        except Unproven:
            REJECTIONS.labels("telemetry", "sender_unproven").inc()
            return False
        return sender is None or not step.node_id or node_of(sender) == agent_of(step.node_id)


def figures_reader(runtime: Runtime, jobs: Host) -> TopicReader:
    """The host that reads telemetry."""
    return TopicReader(runtime, TELEMETRY_ROWS, MirroredSteps(runtime, jobs).counted)
