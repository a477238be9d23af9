"""Commands to other streams that follow from the `job` and `pool` journals."""

from collections.abc import Iterator
from typing import assert_never

from msgspec.structs import replace

from schemas.account import Announce, WebhookEvent
from schemas.admission import BudgetThresholdReached
from schemas.anomaly import AnomalyRecorded
from schemas.dataset import PinDataset, UnpinDataset
from schemas.envelope import Header, Message
from schemas.erasure import CloseJobs, JobsClosed, JobsErased, RecordErasedPart
from schemas.gate import RecordGateRun
from schemas.ids import EVENT, derived_id
from schemas.ids import SESSION as SESSION_PREFIX
from schemas.job import (
    AttemptStarted,
    GateRunEnded,
    HoldTaken,
    JobEnded,
    JobSubmitted,
    PinsWanted,
    PlacementUnwanted,
    PlacementWanted,
    RecordCheckpoint,
    RecordClosed,
    RecordDraining,
    RecordGranted,
    RecordSessionEnding,
    RecordStarted,
    RecordUsage,
    RegistrationWanted,
    VerdictRecorded,
    WantedSet,
    WorkDescribed,
)
from schemas.job import Event as JobEvent
from schemas.lifetime import KeepVersion, ReleaseVersion
from schemas.model import PinBase, RegisterVersion
from schemas.node import NodeKeysWithdrawn, WithdrawNodeKeys
from schemas.pool import (
    CheckpointAccepted,
    ClosePlacement,
    ForgetWork,
    LeaseDraining,
    LeaseGranted,
    LeaseStarted,
    PlacementClosed,
    RequestPlacement,
    UsageCredited,
    UsageSliced,
)
from schemas.pool import Event as PoolEvent
from schemas.records import build_from
from schemas.serving import (
    ServingPoolStalled,
    ServingTermBegun,
    ServingTermEnded,
    ServingTermUnwanted,
)
from schemas.session import (
    CloseSession,
    LeaseSession,
    OpenSession,
    SessionEnding,
    SessionTerms,
    SetSessionTerms,
)
from schemas.session import Event as SessionEvent
from schemas.streams import GLOBAL, PARTITIONS, agent_of
from schemas.submission import JobSpec, UsageSource
from schemas.sweep import SweepEnded, SweepWaiting
from schemas.training import AdapterStart
from schemas.works import DescribeWork
from tunery.plan.price import billed_lease
from tunery.runtime.verbs import Send


def react_job(header: Header, event: JobEvent) -> tuple[Send, ...]:
    """Commands to `dataset`, `model`, `pool` and `account` that follow from an event of `job`."""
    match event:
        case JobSubmitted(spec=JobSpec(start=AdapterStart(model_id=model_id))):
            keep = KeepVersion(job_id=event.job_id, model_id=model_id)
            return (Send("model", header.key, header.tenant, keep),)
        case JobSubmitted(spec=JobSpec(session=SessionTerms() as terms)):
            opening = OpenSession(terms=terms, price_version=event.price_version)
            return (_to_session(event.job_id, header.tenant, opening),)
        case HoldTaken(session=SessionTerms() as terms):
            return (_to_session(event.job_id, header.tenant, SetSessionTerms(terms=terms)),)
        case PinsWanted():
            return _pins(header, event)
        case WorkDescribed():
            describe = DescribeWork(tenant=header.tenant, description=event.description)
            return (_to_pool(event.pool, header.tenant, describe),)
        case PlacementWanted():
            request = RequestPlacement(placement=event.placement)
            return (_to_pool(event.pool, header.tenant, request),)
        case PlacementUnwanted():
            close = ClosePlacement(job_id=event.job_id, request=event.request)
            return (_to_pool(event.pool, header.tenant, close),)
        case RegistrationWanted():
            register = RegisterVersion(terms=event.terms, adapter=event.adapter)
            return (Send("model", header.key, header.tenant, register),)
        case GateRunEnded():
            return (Send("model", header.key, header.tenant, RecordGateRun(run=event.run)),)
        case AttemptStarted(role="train"):
            return (_announce_job(header, event.job_id, "running", f"started/{event.attempt}"),)
        case WantedSet(wanted="paused"):
            return (_announce_job(header, event.job_id, "paused", f"paused/{header.seq}"),)
        case VerdictRecorded():
            return (_announce_job(header, event.job_id, "gated", "gated"),)
        case AnomalyRecorded():
            return (_announce_anomaly(header, event),)
        case BudgetThresholdReached():
            return (_announce_alert(header, event),)
        case JobsClosed(more=True):
            return (_to_job(header.tenant, CloseJobs()),)
        case JobsErased():
            done = RecordErasedPart(part="jobs")
            return (Send("account", header.key, header.tenant, done),)
        case JobEnded():
            return _after_job(header, event)
        case ServingTermBegun() | ServingTermUnwanted() | ServingTermEnded():
            return _of_term(header, event)
        case ServingPoolStalled(serving_pool_id=pool_id):
            stalled = f"stalled/{header.seq}"
            return (_announce(header, pool_id, "serving_pool.stalled", stalled),)
        case SweepWaiting(sweep_id=sweep_id):
            waiting = f"waiting/{header.seq}"
            return (_announce(header, sweep_id, "sweep.waiting", waiting),)
        case SweepEnded(outcome="stopped", sweep_id=sweep_id):
            return (_announce(header, sweep_id, "sweep.stopped", "stopped"),)
        case _:
            return ()


def _of_term(
    header: Header, event: ServingTermBegun | ServingTermUnwanted | ServingTermEnded
) -> tuple[Send, ...]:
    """Return the requests to `pool` for a term: slots, then its end, then to forget it."""
    match event:
        case ServingTermBegun():
            describe = DescribeWork(tenant=header.tenant, description=event.description)
            request = RequestPlacement(placement=event.placement)
            return (
                _to_pool(event.pool, header.tenant, describe),
                _to_pool(event.pool, header.tenant, request),
            )
        case ServingTermUnwanted():
            close = ClosePlacement(job_id=event.term_id, request=event.request)
            return (_to_pool(event.pool, header.tenant, close),)
        case ServingTermEnded():
            return (_to_pool(event.pool, header.tenant, ForgetWork(job_id=event.term_id)),)
        case _:
            assert_never(event)


def react_pool(header: Header, event: PoolEvent) -> tuple[Send, ...]:
    """The commands that follow from an event of `pool`: to `job`, or to all who hear of nodes."""
    match event:
        case NodeKeysWithdrawn() if header.key != GLOBAL:
            return tuple(_withdraw_everywhere(header, event))
        case PlacementClosed():
            closed = build_from(RecordClosed, event)
            return (_to_job(event.tenant, closed),)
        case LeaseGranted() | LeaseStarted() | CheckpointAccepted() | LeaseDraining():
            record = _to_job(event.lease.tenant, _record_of_lease(event))
            return (record, *_to_its_session(event))
        case UsageSliced() | UsageCredited():
            return (_to_job(event.lease.tenant, _record_of_usage(event)),)
        case _:
            return ()


def react_session(header: Header, event: SessionEvent) -> tuple[Send, ...]:
    """Tell its job that a session is ending."""
    if not isinstance(event, SessionEnding):
        return ()
    return (_to_job(header.tenant, RecordSessionEnding(job_id=header.key)),)


def _withdraw_everywhere(header: Header, event: NodeKeysWithdrawn) -> Iterator[Send]:
    """Withdraw the keys in the other partitions of `pool`, and in `account`."""
    if agent_of(event.node_id) != event.node_id:
        return  # said of its agent, too, whose keys they are
    command = WithdrawNodeKeys(node_id=event.node_id, number=event.number)
    for partition in range(PARTITIONS):
        if partition != header.partition:
            yield Send("pool", GLOBAL, GLOBAL, command, partition=partition)
        yield Send("account", GLOBAL, GLOBAL, command, partition=partition)


def _record_of_lease(
    event: LeaseGranted | LeaseStarted | CheckpointAccepted | LeaseDraining,
) -> Message:
    job_id, attempt = event.lease.job_id, event.lease.attempt
    match event:
        case LeaseGranted():
            node_ids = tuple(member.node_id for member in event.members)
            return RecordGranted(job_id=job_id, attempt=attempt, node_ids=node_ids)
        case LeaseStarted():
            return RecordStarted(job_id=job_id, attempt=attempt, start=event.start)
        case CheckpointAccepted():
            return RecordCheckpoint(job_id=job_id, checkpoint=event.checkpoint)
        case LeaseDraining():
            return RecordDraining(job_id=job_id, attempt=attempt)
        case _:
            assert_never(event)


def _record_of_usage(event: UsageSliced | UsageCredited) -> RecordUsage:
    used_by = billed_lease(event)
    tokens = event.tokens if isinstance(event, UsageSliced) else -event.lost_tokens
    source = UsageSource(role=used_by.role, hardware=used_by.hardware, tokens=tokens)
    if isinstance(event, UsageCredited):
        source = replace(source, price_version=used_by.price_version, lane=used_by.lane)
    return RecordUsage(
        job_id=used_by.job_id,
        attempt=used_by.attempt,
        hour_utc=event.hour_utc,
        gpu_ms=event.billable_gpu_ms if isinstance(event, UsageSliced) else -event.lost_gpu_ms,
        source=None if source == UsageSource() else source,
    )


def _pins(header: Header, event: PinsWanted) -> tuple[Send, ...]:
    dataset, spec = PinDataset(job_id=event.job_id, terms=event.terms), event.terms.spec
    base = PinBase(job_id=event.job_id, base_id=spec.base_id, base_sha256=spec.base_sha256)
    sends = (
        Send("dataset", header.key, header.tenant, dataset),
        Send("model", header.key, header.tenant, base),
    )
    return sends if event.terms.training_file else sends[1:]


def _after_job(header: Header, event: JobEnded) -> tuple[Send, ...]:
    """Announce the end, release the dataset; the pool refunds and forgets the job."""
    sends: tuple[Send, ...] = (
        _announce_job(header, event.job_id, event.outcome, "ended"),
        Send("dataset", header.key, header.tenant, UnpinDataset(job_id=event.job_id)),
    )
    if event.pool is not None:
        kept = 0 if event.refund is None else event.billable_gpu_ms - event.lost_gpu_ms
        forget = ForgetWork(job_id=event.job_id, refund=event.refund, kept_gpu_ms=kept)
        sends = (*sends, _to_pool(event.pool, header.tenant, forget))
    if event.job_id.startswith(SESSION_PREFIX):
        sends = (*sends, _to_session(event.job_id, header.tenant, CloseSession()))
    if event.start_id is None:
        return sends
    release = ReleaseVersion(job_id=event.job_id)
    return (*sends, Send("model", header.key, header.tenant, release))


def _announce_job(header: Header, job_id: str, what: str, fact: str) -> Send:
    return _announce(header, job_id, f"fine_tuning.job.{what}", fact)


def _announce(header: Header, object_id: str, event_type: str, fact: str) -> Send:
    """Announce an event to endpoints that subscribe to it; its id is derived from the fact."""
    event = WebhookEvent(
        event_id=EVENT + derived_id(header.tenant, object_id, fact),
        event_type=event_type,
        object_id=object_id,
        created_at=header.at,
    )
    return Send("account", header.key, header.tenant, Announce(event=event))


def _announce_anomaly(header: Header, event: AnomalyRecorded) -> Send:
    announced = WebhookEvent(
        event_id=EVENT + derived_id(header.tenant, event.job_id, f"anomaly/{event.anomaly.key}"),
        event_type="fine_tuning.job.anomaly",
        object_id=event.job_id,
        created_at=header.at,
        anomaly=event.anomaly,
    )
    return Send("account", header.key, header.tenant, Announce(event=announced))


def _announce_alert(header: Header, event: BudgetThresholdReached) -> Send:
    alert = event.alert
    known = derived_id(header.tenant, alert.budget_id, f"{alert.month}/{alert.percent}")
    announced = WebhookEvent(
        event_id=EVENT + known,
        event_type="budget.threshold_reached",
        object_id=alert.budget_id,
        created_at=header.at,
        alert=alert,
    )
    return Send("account", header.key, header.tenant, Announce(event=announced))


def _to_its_session(
    event: LeaseGranted | LeaseStarted | CheckpointAccepted | LeaseDraining,
) -> tuple[Send, ...]:
    """Tell a session which nodes may answer."""
    lease = event.lease
    if not isinstance(event, LeaseGranted) or not lease.job_id.startswith(SESSION_PREFIX):
        return ()
    node_ids = tuple(member.node_id for member in event.members)
    leased = LeaseSession(attempt=lease.attempt, node_ids=node_ids)
    return (_to_session(lease.job_id, lease.tenant, leased),)


def _to_session(session_id: str, tenant: str, body: Message) -> Send:
    return Send("session", session_id, tenant, body)


def _to_pool(pool: str, tenant: str, body: Message) -> Send:
    return Send("pool", pool, tenant, body)


def _to_job(tenant: str, body: Message) -> Send:
    return Send("job", tenant, tenant, body)
