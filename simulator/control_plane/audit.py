"""What must hold after a run of the town, at every prefix of its journals."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import msgspec

from schemas.account import DeliveryDue, DeliveryEnded
from schemas.envelope import Envelope
from schemas.job import JobEnded, JobSubmitted
from schemas.telemetry import Heartbeat
from schemas.topics import HEARTBEATS, STREAMS
from schemas.units import HOUR_MS, GpuMs, Micro
from services.billing.adapters.prices import read_books
from services.billing.domain.invoice import LedgerRow, invoice
from services.billing.domain.periods import period
from simulator.control_plane.control_plane_sim import Run
from simulator.control_plane.quota_books import Quota, month
from simulator.control_plane.usage_books import Beat, Line, Meter
from simulator.engine.verdict import Verdict
from tunery.runtime.journal.reader import Accepted

CLAIM = b'{"record":"claim"'
books = cache(read_books)


@dataclass(frozen=True)
class Audit:
    """The second books of a run, and what they found."""

    meter: Meter
    quota: Quota
    violations: list[str]


def audited(run: Run) -> Audit:
    """All invariants of the town, none computed by what it checks."""
    meter, quota = Meter(_beats(run), _diaries(run)), Quota()
    for one, command in _decisions(run, "pool"):
        meter.enter(command, one.events, one.header.at)
    for one, command in _decisions(run, "job"):
        quota.enter(one.header.key, command, one.events, one.header.at)
    violations = [f"false stop: {stop}" for stop in run.cluster.named]
    violations += [f"died: {death}" for death in run.cluster.died]
    violations += [*run.ground.violations, *meter.violations, *quota.violations]
    violations += _ledger(run, meter) + _deliveries(run)
    if run.finished:
        violations += _ends(run, meter, quota)
    else:
        violations.append("progress: not everything ended after faults had stopped")
    return Audit(meter, quota, violations)


def check(run: Run) -> Verdict:
    audit, broker = audited(run), run.ground.broker
    journals = {stream.journal.name for stream in STREAMS.values()}
    entries = sum(
        not record.value.startswith(CLAIM)
        for (topic, _), records in broker.history.items()
        if topic in journals
        for record in records
    )
    accepted = sum(len(news) for news in run.ground.news.values())
    return Verdict(
        violations=audit.violations,
        voided=entries - accepted,
        faults=dict(broker.tally.counts),
        counts={
            "jobs": len(audit.quota.ended),
            "leases": len(audit.meter.leases),
            "commands": accepted,
        },
        trace=run.trace,
    )


def _beats(run: Run) -> frozenset[Beat]:
    decode = msgspec.json.Decoder(Heartbeat).decode
    found = set()
    for (topic, _), records in run.ground.broker.history.items():
        if topic == HEARTBEATS.name:
            for record in records:
                beat = decode(record.value)
                found.add((beat.node_id, beat.incarnation, record.timestamp))
    return frozenset(found)


def _diaries(run: Run) -> dict[tuple[str, int], Any]:
    return {place: diary for machine in run.machines for place, diary in machine.diaries.items()}


def _decisions(run: Run, stream: str) -> Iterator[tuple[Accepted, Any]]:
    """Every accepted entry with the command that it decides."""
    commands, union = STREAMS[stream].commands.name, STREAMS[stream].command
    decode, opened = msgspec.json.Decoder(union).decode, msgspec.json.Decoder(Envelope).decode
    for one in run.ground.news[stream]:
        record = run.ground.broker.history[commands, one.header.partition][one.entry.cause]
        yield one, decode(opened(record.value).body)


def _ledger(run: Run, meter: Meter) -> list[str]:
    """Billing has every line of the pool, once; every invoice is the sum of its slices."""
    found: list[str] = []
    rows = Counter(msgspec.convert(row, Line) for row in run.ledger)
    if rows != meter.lines:
        found.append(f"ledger: only in billing {rows - meter.lines}, not {meter.lines - rows}")
    for (tenant, name), truth in bills(meter.lines).items():
        mine = [msgspec.convert(row, LedgerRow) for row in run.ledger if row["tenant"] == tenant]
        made = invoice(tenant, period(name), mine, books(), None, "EUR")
        if (made.gpu_ms, made.amount_micro) != truth:
            found.append(f"invoice: {tenant} {name} is {made}, its slices are {truth}")
    return found


def bills(lines: Iterable[Line]) -> dict[tuple[str, str], tuple[GpuMs, Micro]]:
    """Time and money by tenant and month; each line of an invoice is rounded half to even."""
    sums: Counter[tuple[Any, ...]] = Counter()
    for line in lines:
        price = books()[line.price_version].gpu_hour_micro[line.lane]
        kept = (line.job_id, line.hour, line.kind, line.role, line.cause, price)
        sums[line.tenant, month(line.hour), *kept] += line.gpu_ms
    found: dict[tuple[str, str], tuple[GpuMs, Micro]] = defaultdict(lambda: (0, 0))
    for (tenant, name, *_, price), gpu_ms in sums.items():
        time, money = found[tenant, name]
        found[tenant, name] = time + gpu_ms, money + round(Fraction(gpu_ms * price, HOUR_MS))
    return dict(found)


def _ends(run: Run, meter: Meter, quota: Quota) -> list[str]:
    """Every job has ended, every hold is released, every lease is closed; all say the same bill."""
    found = [f"end: {job_id} never ended" for job_id in sorted(_submitted(run) - set(quota.ended))]
    if meter.queued != meter.closed:
        found.append(f"closed: {meter.queued - meter.closed} were never closed")
    if +quota.counted != +Counter(meter.net) or -quota.counted != -Counter(meter.net):
        found.append(f"hold: quota counts {quota.counted}, the pool {dict(meter.net)}")
    for job_id, ended in quota.ended.items():
        said, truth = (ended.billable_gpu_ms, ended.lost_gpu_ms), meter.totals[job_id]
        net = truth[0] - truth[1]
        if said != truth:
            found.append(f"end: {job_id} ends with {said}, its leases cost {truth}")
        if not 0 <= net <= quota.held.get(job_id, 0):
            found.append(f"hold: {job_id} costs {net} of {quota.held.get(job_id)} held")
        if ended.released_gpu_ms != quota.held.get(job_id, 0) - net:
            found.append(f"hold: {job_id} used {net} and releases {ended.released_gpu_ms}")
    return found


def _submitted(run: Run) -> set[str]:
    return {
        event.job_id
        for one in run.ground.news["job"]
        for event in one.events
        if isinstance(event, JobSubmitted)
    }


def _deliveries(run: Run) -> list[str]:
    """Every end is announced to the tenant's endpoint once, and every delivery ends once."""
    due, over = Counter[str](), Counter[str]()
    for one in run.ground.news["account"]:
        due.update(e.delivery_id for e in one.events if isinstance(e, DeliveryDue))
        over.update(e.delivery_id for e in one.events if isinstance(e, DeliveryEnded))
    ends = sum(isinstance(e, JobEnded) for one in run.ground.news["job"] for e in one.events)
    if run.finished and (due != over or len(due) != ends or max(due.values(), default=1) > 1):
        return [f"delivery: {ends} ends, {len(due)} due, {len(over)} over: {due - over}"]
    return []
