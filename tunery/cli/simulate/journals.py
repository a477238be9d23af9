"""Reads a journal of the pool: the jobs that ran, the nodes that there were, and its decisions.

    tunery journal export pool FILE

A record has facts and, after them, what the pool decided because of them. The decisions of each
record are made once more, with the production decider on the state before it, and compared.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Final, TypeAlias

from schemas.envelope import Context, Rejected, Repeated
from schemas.node import NodeCordoned, NodeForgotten, PlanningDeferred
from schemas.pool import (
    Event,
    LeaseDraining,
    LeaseGranted,
    NodeLost,
    NodeRegistered,
    NodeRetired,
    PlacementClosed,
    PlacementQueued,
    WaitExplained,
)
from schemas.topics import POOL
from schemas.units import Ms
from schemas.works import WorkKept
from services.scheduler.domain.pool.decide import decide_following
from services.scheduler.domain.pool.evolve import evolve_pool
from services.scheduler.domain.pool.state import Pool
from tunery.cli.simulate.trace_jobs import TraceJob
from tunery.plan.scheduling.requests import LANES
from tunery.runtime.journal.acceptance import PartitionStopped
from tunery.runtime.journal.codec import codec_of, raw_events
from tunery.runtime.journal.fold import context_of
from tunery.runtime.journal.reader import START, Accepted, Position, read_record
from tunery.runtime.tools.archive import ArchiveError, ArchiveReader

HEAD: Final = b'{"line":"head"'
Events: TypeAlias = tuple[Event, ...]


class JournalUnreadable(Exception):
    """The file is no whole journal of the pool. The message says where."""


@dataclass(frozen=True, slots=True)
class RecordDifference:
    """Decisions of one record that are not made again."""

    location: str  # its partition and offset
    # recorded, decided: kinds of its decisions, and of those that are made now
    recorded: tuple[str, ...]
    decided: tuple[str, ...]


@dataclass(slots=True)
class Decisions:
    """Decisions of a journal, compared with those of today's scheduler."""

    records: int = 0  # number of records that count
    compared: int = 0  # decisions in them
    kinds: Counter[str] = field(default_factory=Counter)  # how many of each kind
    # records in which they are not the same bytes
    differences: list[RecordDifference] = field(default_factory=list)


@dataclass(slots=True)
class PoolHistory:
    """Jobs and nodes in an export of a pool's journal."""

    # placements that ran and ended: for each job one of training and one of evaluation
    jobs: list[TraceJob]
    jobs_open: int  # number of jobs that had not ended, or never ran
    nodes: int  # the largest number of nodes at one time
    slots: int  # the most frequent number of slots of a node


def is_journal(content: bytes) -> bool:
    """True if a file is an export of a journal."""
    return content.startswith(HEAD)


def read_history(file: IO[bytes]) -> PoolHistory:
    """Jobs and nodes of an export. Raises JournalUnreadable."""
    works: dict[tuple[str, str], _Work] = {}
    bases: dict[tuple[str, str], str] = {}
    present: dict[str, int] = {}
    nodes_max, sizes = 0, Counter[int]()
    for accepted in _accepted(file):
        for event in accepted.events:
            match event:
                case NodeRegistered(node=node):
                    present[node.node_id] = node.slots
                    sizes[node.slots] += 1
                    nodes_max = max(nodes_max, len(present))
                case NodeLost() | NodeRetired() | NodeForgotten():
                    present.pop(event.node_id, None)
                case WorkKept(description=known):
                    bases[known.job_id, known.work_id] = known.work.base_id
                case PlacementQueued(placement=placement):
                    key = placement.job_id, placement.role
                    base_id = bases.get((placement.job_id, placement.work_id), "")
                    queued = _Work(event, base_id, accepted.entry.at)
                    works.setdefault(key, queued).is_open = True
                case PlacementClosed():
                    work = works.get((event.job_id, event.role))
                    if work is not None:
                        work.is_open, work.succeeded = False, event.end.outcome == "succeeded"
                        work.gpu_ms += event.end.used_gpu_ms - event.end.lost_gpu_ms
                case _:
                    pass
    done = [work for work in works.values() if not work.is_open and work.gpu_ms > 0]
    begin = min((work.queued_at for work in done), default=0)
    jobs = [work.job(number, begin) for number, work in enumerate(done)]
    slots = sizes.most_common(1)[0][0] if sizes else 1
    return PoolHistory(jobs, len(works) - len(jobs), max(1, nodes_max), slots)


def compare_decisions(file: IO[bytes]) -> Decisions:
    """Decide every record of an export again. Raises JournalUnreadable."""
    compared = Decisions()
    pools: dict[tuple[int, str], Pool] = {}
    for accepted in _accepted(file):
        entry, context = accepted.entry, context_of(accepted.entry)
        key = accepted.partition, entry.key
        pool = pools.get(key, Pool())
        facts, decisions = split_decisions(pool, accepted.events, context)
        again = _decide_again(pool, facts, context)
        compared.records += 1
        compared.compared += len(decisions)
        compared.kinds.update(_names(decisions))
        recorded = [
            bytes(raw)
            for raw, event in zip(entry.events[len(facts) :], decisions, strict=True)
            if not isinstance(event, WaitExplained)
        ]
        if recorded != [bytes(raw) for raw in raw_events(again)]:
            offset = accepted.position.offset - 1
            location = f"{POOL.name}/{accepted.partition} at offset {offset}"
            compared.differences.append(
                RecordDifference(location, _names(decisions), _names(again))
            )
        for event in accepted.events:
            pool = evolve_pool(pool, event, context)
        pools[key] = pool
    return compared


@dataclass(slots=True)
class _Work:
    """Placements of one job in one role, and the first of them as it was queued."""

    queued: PlacementQueued
    base_id: str
    queued_at: Ms
    is_open: bool = True
    succeeded: bool = False
    gpu_ms: int = 0

    def job(self, number: int, begin: Ms) -> TraceJob:
        placement, expected = self.queued.placement, self.queued.expected
        return TraceJob(
            job_id=str(number).zfill(8),
            submitted_at=self.queued_at - begin,
            duration_ms=max(1, self.gpu_ms // placement.slots),
            estimate_ms=max(1, expected.p50_ms if expected else placement.p50_ms),
            upper_ms=expected.p90_ms if expected else placement.p90_ms,
            slots=placement.slots,
            tenant=placement.tenant,
            lane=LANES.index(placement.lane),
            work=f"{placement.role} {self.base_id} on {placement.device}",
            succeeded=self.succeeded,
        )


def _accepted(file: IO[bytes]) -> Iterator[Accepted]:
    """Records that count, in order. Raises JournalUnreadable."""
    codec, positions = codec_of(POOL), dict[int, Position]()
    try:
        archive = ArchiveReader(file)
        if archive.stream != POOL.name:
            text = f"line 1: this is the journal of {archive.stream}, not of {POOL.name}"
            raise JournalUnreadable(f"{text}: `tunery journal export {POOL.name} FILE`.")
        for record in archive.records():
            position = positions.get(record.partition, START)
            judged = read_record(POOL, codec, position, record)
            positions[record.partition] = judged.position
            if judged.accepted is not None:
                yield judged.accepted
    except (ArchiveError, PartitionStopped) as error:
        raise JournalUnreadable(f"{error}.") from error


def split_decisions(pool: Pool, events: Sequence[Any], context: Context) -> tuple[Events, Events]:
    """Facts of a record, and the decisions that follow from them, which begin with the first."""
    for number, event in enumerate(events):
        if number and _is_decision(pool, event):  # it follows from a fact
            return tuple(events[:number]), tuple(events[number:])
        pool = evolve_pool(pool, event, context)
    return tuple(events), ()


def _is_decision(pool: Pool, event: Event) -> bool:
    match event:
        case LeaseGranted() | PlanningDeferred() | WaitExplained():
            return True
        case LeaseDraining():
            return event.beneficiary is not None
        case NodeCordoned():
            # A node that registers again is said to be cordoned still: that is a fact.
            node = pool.nodes.get(event.node_id)
            is_new = node is not None and node.cordon is None
            return is_new and event.reason.code == "jobs_failed"
        case _:
            return False


def _decide_again(pool: Pool, facts: Events, context: Context) -> Events:
    if not facts or isinstance(facts[0], Rejected | Repeated):
        return ()
    return decide_following(pool, facts, context)


def _names(events: Sequence[Event]) -> tuple[str, ...]:
    return tuple(type(event).__name__ for event in events)
