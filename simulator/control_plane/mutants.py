"""Rules of jobs, leases and money, one broken at a time. Each must be caught by the audit."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from immutables import Map
from msgspec.structs import replace

from schemas.account import Lane
from schemas.admission import TENANT_BUDGET, AnswersCharged, BudgetUse, SuspensionSet
from schemas.billing import PriceBook
from schemas.envelope import Context
from schemas.job import JobEnded, SubmitJob
from schemas.pool import (
    EndAuthor,
    Event,
    LeaseMember,
    LeaseStarted,
    ReportExit,
    Role,
    UsageCredited,
)
from schemas.reasons import EndCode, ending
from schemas.training import AttemptOutcome, FailureCause
from schemas.units import GpuMs, Micro, MicroGpuMs, Ms, Tokens, hour_of
from services.scheduler.domain.job import (
    admission,
    budgets,
    decide,
    evolve,
    quota,
    serving,
    steps,
    submitting,
)
from services.scheduler.domain.job.quota import month_standing, terms_at
from services.scheduler.domain.job.state import MonthUse, OpenJob, OpenTerm, TenantJobs
from services.scheduler.domain.pool import (
    closing,
    deadlines,
    lease_keys,
    nodes,
    planned_pool,
    reports,
)
from services.scheduler.domain.pool import evolve as pool_evolve
from services.scheduler.domain.pool import state as pool_state
from services.scheduler.domain.pool.closing import LeaseEnd
from services.scheduler.domain.pool.state import Lease, Node, Pool, lease_key, open_leases
from services.scheduler.domain.pool.usage import ChargedHour, Slice, newest_hours, slices
from simulator.control_plane.account_mutants import ACCOUNT_MUTANTS
from simulator.control_plane.elastic_mutants import ELASTIC_MUTANTS
from simulator.control_plane.export_mutants import EXPORT_MUTANTS
from simulator.control_plane.node_mutants import NODE_MUTANTS
from simulator.control_plane.work_mutants import WORK_MUTANTS
from simulator.event_core.mutants import Mutant
from tunery.billing import lines
from tunery.plan.price import usage_micro
from tunery.plan.refunds import ATTEMPTS, Refund, attempt_refund
from tunery.plan.scheduling.capacity import Capacity
from tunery.plan.scheduling.requests import Seats
from tunery.runtime.hosts.broker_time import BrokerTime

_held_members = pool_state.held_members


def _held_until_closed(lease: Lease) -> tuple[LeaseMember, ...]:
    """Slots are given again as soon as the money has ended, whatever still runs."""
    return () if lease.closed else _held_members(lease)


def _held_until_one_is_free(lease: Lease) -> tuple[LeaseMember, ...]:
    """With the first of its members all are free."""
    return () if lease.freed else _held_members(lease)


_whole_nodes = Capacity._whole_nodes


def _without_a_rest(self: Capacity, *arguments: Any) -> Seats | None:
    """A gang starts with its whole nodes; the rest of it does not."""
    seats = _whole_nodes(self, *arguments)
    return None if seats is None else seats[:1]


def _any_proof(lease: Lease, known: Map[str, Node]) -> Ms:
    """A lease has run as long as any of its members has."""
    proofs = [
        pool_evolve._proof(lease, node)
        for member in lease.members
        if (node := known.get(member.node_id)) is not None
        and node.description.incarnation == member.incarnation
    ]
    return max(proofs, default=0)


def _of_the_first(lease: Lease) -> int:
    """Slots of its first member."""
    return lease.members[0].slots


_report = reports.decide_report


def _by_order(pool: Pool, command: Any, ctx: Context, then: Any) -> tuple[Event, ...]:
    """A token that is not newer than the node's open lease counts as that lease's."""
    for lease in open_leases(pool):
        mine = any(member.incarnation == command.incarnation for member in lease.members)
        if mine and lease.number >= command.token.lease:
            return then(lease, command, ctx)  # type: ignore[no-any-return]  # as in `report`
    return _report(pool, command, ctx, then)


def _closed_again(pool: Pool, command: Any, ctx: Context, then: Any) -> tuple[Event, ...]:
    """An exit that comes again, before the slots are free, ends its lease again."""
    lease = pool.leases.get(lease_key(command.token.lease))
    if lease is not None and lease.closed and isinstance(command, ReportExit):
        return then(lease, command, ctx)  # type: ignore[no-any-return]  # as in `report`
    return _report(pool, command, ctx, then)


def _refund_again(pool: Pool, command: Any, ctx: Context, then: Any) -> tuple[Event, ...]:
    """Every report of a failed attempt is refunded, with whatever token."""
    lease = pool.leases.get(lease_key(command.token.lease))
    if lease is not None and lease.closed and isinstance(command, ReportExit):
        lost = lease.billable_gpu_ms - lease.lost_gpu_ms
        hour_utc = hour_of(ctx.at)
        credit = UsageCredited(
            lease=lease.ref, hour_utc=hour_utc, lost_gpu_ms=lost, cause="platform"
        )
        return (credit,) if lost else ()
    return _report(pool, command, ctx, then)


def _to_the_end(lease: Lease, _last_seen: Ms, at: Ms, code: EndCode) -> LeaseEnd:
    started_at = at if lease.started_at is None else lease.started_at
    return LeaseEnd(closing.elapsed_ms(lease, at - started_at, at), "lost", "node", ending(code))


def _as_reported(lease: Lease, reported_ms: Ms, at: Ms) -> Ms:
    return 0 if lease.started_at is None else max(reported_ms, closing.sliced_ms(lease))


def _uncut(started_at: Ms, from_ms: Ms, to_ms: Ms, slots: int, most: GpuMs) -> tuple[Slice, ...]:
    used = slots * (to_ms - from_ms)
    billable = min(slots * to_ms, most) - min(slots * from_ms, most)
    return (Slice(hour_of(started_at + from_ms), used, billable),) if used > 0 else ()


def _when_noticed(
    started_at: Ms, from_ms: Ms, to_ms: Ms, slots: int, most: GpuMs
) -> tuple[Slice, ...]:
    """Bill delayed time in the hour, and so the month, in which it is noticed."""
    at = hour_of(started_at + to_ms)
    parts = slices(started_at, from_ms, to_ms, slots, most)
    return tuple(Slice(at, part.used_gpu_ms, part.billable_gpu_ms) for part in parts)


_evolved = pool_evolve._evolve_lease


def _from_the_grant(lease: Lease, event: Any, ctx: Context) -> Lease:
    evolved = _evolved(lease, event, ctx)
    return (
        replace(evolved, started_at=lease.granted_at)
        if isinstance(event, LeaseStarted)
        else evolved
    )


def _only_used(tenant: TenantJobs, scope: str, currency: str, at: Ms) -> BudgetUse:
    use = month_standing(tenant, scope, currency, at)
    return replace(use, held_gpu_ms=0) if scope == TENANT_BUDGET else use


_jobs_without = evolve._evolve_tenant


def _none_held(tenant: TenantJobs, scope: str, currency: str, at: Ms) -> BudgetUse:
    return replace(month_standing(tenant, scope, currency, at), held_micro=0)


def _ended_only(tenant: TenantJobs, scope: str, currency: str, at: Ms) -> BudgetUse:
    use = month_standing(tenant, scope, currency, at)
    return use if scope == TENANT_BUDGET else replace(use, held_micro=0)


def _cancelled_stays(tenant: TenantJobs, event: Any, ctx: Context) -> TenantJobs:
    """A cancelled job is not settled: its hold stays."""
    evolved = _jobs_without(tenant, event, ctx)
    if isinstance(event, JobEnded) and event.outcome == "cancelled":
        kept = tenant.jobs.get(event.job_id)
        return evolved if kept is None else replace(evolved, jobs=tenant.jobs)
    return evolved


def _nothing_released(job: OpenJob) -> GpuMs:
    return 0


def _nothing_left(_term: OpenTerm) -> GpuMs:
    return 0


def _as_of_trainings(
    outcome: AttemptOutcome, ended_by: EndAuthor, cause: FailureCause | None, _role: Role
) -> Refund:
    """Refund a replica's time by the rules for training attempts."""
    return attempt_refund(outcome, ended_by, cause)


def _all_lost(billable_gpu_ms: GpuMs, _slots: int, _captured_ms: Ms) -> GpuMs:
    return billable_gpu_ms


def _never_stuck(_lease: Lease, _idle_ms: Ms) -> bool:
    return False


def _at_the_limit(lease: Lease) -> Ms:
    return lease.granted_at + lease.start_ms_max


def _believed(_: BrokerTime, timestamp: Ms) -> Ms:
    return timestamp


def _none_running(_: TenantJobs) -> int:
    return 0


def _never_sliced(_: Lease) -> Ms:
    return 0


def _uncapped(started_at: Ms, from_ms: Ms, to_ms: Ms, slots: int, _: GpuMs) -> tuple[Slice, ...]:
    return slices(started_at, from_ms, to_ms, slots, slots * to_ms)


def _never_suspended(tenant: TenantJobs, event: Any, ctx: Context) -> TenantJobs:
    """`job` notes a suspension only once somebody resumes the tenant."""
    if isinstance(event, SuspensionSet) and event.suspended:
        return tenant
    return _jobs_without(tenant, event, ctx)


def _stays_suspended(tenant: TenantJobs, event: Any, ctx: Context) -> TenantJobs:
    if isinstance(event, SuspensionSet) and not event.suspended:
        return tenant
    return _jobs_without(tenant, event, ctx)


_submit = submitting.submit_job


def _any_price(tenant: TenantJobs, command: SubmitJob, ctx: Context) -> tuple[Any, ...]:
    """A submission that was priced by another book or lane is admitted at that price."""
    terms, spec = terms_at(tenant, ctx.at), command.spec
    if terms is None:
        return _submit(tenant, command, ctx)
    price = replace(spec.price, version=terms.price_version, lane=terms.lane)
    return _submit(tenant, replace(command, spec=replace(spec, price=price)), ctx)


_book_of = lines.book_of


def _newest_book(books: Mapping[str, PriceBook], version: str, lane: Lane) -> PriceBook:
    currency = _book_of(books, version, lane).currency
    same = (book for book in books.values() if book.currency == currency)
    return max(same, key=lambda book: book.effective_from)


def _one_currency(books: Mapping[str, PriceBook], version: str, lane: Lane) -> PriceBook:
    return replace(_book_of(books, version, lane), currency="EUR")


def _seen_is_run(_lease: Lease, node: Node) -> Ms:
    """A lease has run as long as its node was seen, by the broker's time."""
    return node.last_seen


def _listed_or_not(pool: Pool, seen: Any, leases: tuple[Lease, ...], ctx: Context) -> list[Event]:
    """An attempt whose task in its agent is gone lives as long as its agent."""
    return []


def _job_pays(_code: str) -> None:
    """A job that the platform failed costs what its attempts did."""


def _attempt_pays(
    _outcome: AttemptOutcome, _by: EndAuthor, _cause: FailureCause | None, _role: Role
) -> Refund:
    """Lost work is billed even if the platform lost it."""
    return ATTEMPTS["user"]


def _in_the_newest(
    charged: Sequence[ChargedHour], gpu_ms: GpuMs, tokens: Tokens = 0
) -> tuple[ChargedHour, ...]:
    """A credit is of the hour, and so of the month, in which its lease ended."""
    parts = newest_hours(charged, gpu_ms, tokens)
    if not parts:
        return parts
    sums = sum(part.gpu_ms for part in parts), sum(part.tokens for part in parts)
    return (replace(parts[-1], gpu_ms=sums[0], tokens=sums[1]),)


def _whole_millionths(tenant: TenantJobs, charged: AnswersCharged) -> Map[str, MonthUse]:
    """Round each count of answers by itself."""
    costs = tuple(replace(cost, millionths=0) for cost in charged.costs)
    return _with_answers(tenant, replace(charged, costs=costs))


def _line_alone(_before: MicroGpuMs, time: MicroGpuMs) -> Micro:
    """Round each line of a job by itself."""
    return usage_micro(time)


def _although_it_ended(lease: Lease, incarnation: str) -> LeaseMember | None:
    """Keys are given for whatever an agent has held."""
    return next((member for member in lease.members if member.incarnation == incarnation), None)


def _without_a_bound(_job: OpenJob, _role: Role) -> GpuMs | None:
    return None


_with_answers = quota.with_answers
_REPORT = reports, "decide_report"
OF_JOBS: Final[Sequence[Mutant]] = (
    Mutant(
        "an evaluation costs more than its training",
        steps,
        "billed_gpu_ms_max",
        _without_a_bound,
        "ledger",
        seed=13,
    ),
    Mutant(
        "slots freed before the kill is confirmed",
        planned_pool,
        "held_members",
        _held_until_closed,
        "slots",
        seed=19,
    ),
    Mutant(
        "one free member frees all",
        planned_pool,
        "held_members",
        _held_until_one_is_free,
        "slots",
        seed=60,
    ),
    Mutant("a gang without its rest", Capacity, "_whole_nodes", _without_a_rest, "slots", seed=6),
    Mutant(
        "a gang lives as long as any member",
        pool_evolve,
        "_last_proof_of_all",
        _any_proof,
        "ledger",
        seed=81,
    ),
    Mutant("one member billed", Lease, "slots", property(_of_the_first), "ledger", seed=6),
    Mutant("fencing tokens compared by order", *_REPORT, _by_order, "token", seed=19),
    Mutant(
        "keys of a lease that ended", lease_keys, "member_of", _although_it_ended, "keys", seed=2
    ),
    Mutant("a placement closed twice", *_REPORT, _closed_again, "closed", seed=2),
    Mutant(
        "cancelled jobs keep their hold",
        evolve,
        "_evolve_tenant",
        _cancelled_stays,
        "hold",
        seed=25,
    ),
    Mutant("the hold's rest is not released", steps, "rest_gpu_ms", _nothing_released, "hold"),
    Mutant(
        "use after the last proof of life", closing, "end_of_lost", _to_the_end, "ledger", seed=11
    ),
    Mutant("what no agent lists lives on", nodes, "_unlisted", _listed_or_not, "progress", seed=42),
    Mutant(
        "a job that the platform failed billed", steps, "job_refund", _job_pays, "refund", seed=79
    ),
    Mutant("lost work billed", closing, "attempt_refund", _attempt_pays, "ledger", seed=4),
    Mutant(
        "a lost replica is given back",
        closing,
        "attempt_refund",
        _as_of_trainings,
        "ledger",
        seed=30,
    ),
    Mutant("a term keeps its hold", serving, "term_rest_gpu_ms", _nothing_left, "hold", seed=16),
    Mutant(
        "other holds ignored by terms", serving, "month_standing", _only_used, "limit", seed=140
    ),
    Mutant(
        "a credit in the hour of the end", closing, "newest_hours", _in_the_newest, "ledger", seed=8
    ),
    Mutant(
        "each line of a bill rounded alone", lines, "line_micro", _line_alone, "invoice", seed=1
    ),
    Mutant(
        "each count of answers rounded alone",
        evolve,
        "with_answers",
        _whole_millionths,
        "limit",
        seed=3,
    ),
    Mutant("an agent's time as it says", closing, "elapsed_ms", _as_reported, "ledger", seed=2),
    Mutant("refund without a token", *_REPORT, _refund_again, "ledger", seed=29),
    Mutant("provisioning billed", pool_evolve, "_evolve_lease", _from_the_grant, "ledger", seed=2),
    Mutant("slices not cut at full hours", closing, "slices", _uncut, "ledger", seed=16),
    Mutant(
        "an outage's use billed when it ends", closing, "slices", _when_noticed, "ledger", seed=10
    ),
    Mutant(
        "passed hours billed again at the end",
        closing,
        "sliced_ms",
        _never_sliced,
        "ledger",
        seed=4,
    ),
    Mutant("use above the cap billed", closing, "slices", _uncapped, "ledger", seed=798),
    Mutant("kept work credited too", closing, "lost_gpu_ms", _all_lost, "ledger", seed=3),
    Mutant(
        "limit checked against use alone", admission, "month_standing", _only_used, "limit", seed=15
    ),
    Mutant(
        "a key's open jobs not counted", admission, "month_standing", _ended_only, "limit", seed=165
    ),
    Mutant(
        "a budget's open jobs not counted", budgets, "month_standing", _none_held, "limit", seed=3
    ),
    Mutant("a stuck process is not ended", deadlines, "is_stuck", _never_stuck, "stuck", seed=24),
    Mutant("preparing is no progress", deadlines, "_start_by", _at_the_limit, "start", seed=20),
    Mutant("broker time believed at once", BrokerTime, "believe", _believed, "time", seed=3),
    Mutant("suspension ignored", evolve, "_evolve_tenant", _never_suspended, "suspended"),
    Mutant("resumption ignored", evolve, "_evolve_tenant", _stays_suspended, "refusal", seed=32),
    Mutant("prices of submissions not compared", decide, "submit_job", _any_price, "price", seed=5),
    Mutant("billed by the newest price book", lines, "book_of", _newest_book, "invoice", seed=5),
    Mutant("all currencies on one bill", lines, "book_of", _one_currency, "invoice", seed=7),
    Mutant("sleep of a machine billed", pool_evolve, "_proof", _seen_is_run, "ledger", seed=9),
    Mutant("concurrency not counted", submitting, "running", _none_running, "limit", seed=4),
)
MUTANTS: Final[Sequence[Mutant]] = (
    *OF_JOBS,
    *ACCOUNT_MUTANTS,
    *WORK_MUTANTS,
    *NODE_MUTANTS,
    *ELASTIC_MUTANTS,
    *EXPORT_MUTANTS,
)
