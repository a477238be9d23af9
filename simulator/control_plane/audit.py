"""Invariants of a run of the control plane, checked at every prefix of its journals."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from schemas.account import DeliveryDue, DeliveryEnded, TenantResumed, TenantSuspended
from schemas.admission import AnswersCharged
from schemas.answers import AnswerCost, AnswersCounted
from schemas.erasure import TenantErasureBegun
from schemas.job import JobEnded
from schemas.telemetry import Heartbeat
from schemas.topics import HEARTBEATS, SESSION, STREAMS
from schemas.units import HOUR_MS, PPM, month_of
from simulator.control_plane.account_books import AccountBooks
from simulator.control_plane.admission_books import AdmissionBooks
from simulator.control_plane.bills import LATER_BOOKS, books_on_log, compare_bills
from simulator.control_plane.books import SecondBooks
from simulator.control_plane.control_plane_sim import ControlPlaneRun
from simulator.control_plane.coverage import kind_of
from simulator.control_plane.node_books import NodeBooks
from simulator.control_plane.placement_books import PlacementBooks
from simulator.control_plane.quota_books import Quota
from simulator.control_plane.serving_books import ServingBooks
from simulator.control_plane.sessions import SessionBooks
from simulator.control_plane.sweep_books import SweepBooks
from simulator.control_plane.tenants import ENDPOINT
from simulator.control_plane.usage_books import Agent, Beat, LedgerLine, Meter
from simulator.engine.verdict import Verdict

CLAIM = b'{"record":"claim"'


@dataclass(frozen=True)
class Audit:
    """The independent accounts of a run, and the violations they found."""

    meter: Meter
    quota: Quota
    violations: list[str]
    kinds: Counter[str]


def audit_run(run: ControlPlaneRun) -> Audit:
    """All invariants of a run. None is computed by the code that it checks."""
    books = SecondBooks(_beats(run), _diaries(run))
    accounts, kinds = AccountBooks(), Counter[str]()
    for stream in run.context.decisions:
        for decision, _, command in run.context.commands(stream):
            kinds[kind_of(stream, "command", command)] += 1
            kinds.update(kind_of(stream, "event", event) for event in decision.events)
    for decision, _, command in run.context.commands("account"):
        accounts.enter(decision.header.key, command, decision.events, decision.header.at)
    sweeps, served = SweepBooks(books.quota), ServingBooks(books.quota)
    nodes, placements, admissions = NodeBooks(), PlacementBooks(), AdmissionBooks()
    for decision, _, command in run.context.commands("job"):
        key, at = decision.header.key, decision.header.at
        books.enter_job(key, command, decision.events, at)
        sweeps.enter(key, command, decision.events, at)
        served.enter(key, decision.events, at)
    for decision, envelope, command in run.context.commands("pool"):
        books.enter_pool(command, decision.events, decision.header.at)
        nodes.enter(envelope.sender, command, decision.events, decision.header.at)
        placements.enter(command, decision.events, decision.header.at)
        admissions.enter(command, decision.events, decision.header.at)
    sessions = SessionBooks()
    for decision in run.context.decisions.get(SESSION.name, ()):
        sessions.enter(decision.header.key, decision.events)
    violations = [f"false stop: {stop}" for stop in run.cluster.named]
    violations += [f"died: {death}" for death in run.cluster.died]
    violations += [*run.context.violations, *accounts.violations, *books.violations]
    violations += [
        *sweeps.violations,
        *sessions.violations,
        *served.violations,
        *nodes.violations,
        *placements.violations,
        *admissions.violations,
    ]
    violations += _ledger(run, books) + _deliveries(run) + _prices_of_answers(run)
    if run.finished:
        violations += books.violations_at_the_end() + _suspensions(run, books.quota)
        violations += _answers(run) + accounts.violations_at_the_end()
        violations += _bills_of_closed_months(run, accounts, books)
        violations += run.exporter.violations() + sessions.violations_at_the_end()
    else:
        violations.append("progress: not everything ended after faults had stopped")
    return Audit(books.meter, books.quota, violations, kinds)


def check(run: ControlPlaneRun) -> Verdict:
    """The verdict on a run: its violations, and the sums that a report adds up."""
    audit, broker = audit_run(run), run.context.broker
    journals = {stream.journal.name for stream in STREAMS.values()}
    entries = sum(
        not record.value.startswith(CLAIM)
        for (topic, _), records in broker.history.items()
        if topic in journals
        for record in records
    )
    accepted = sum(len(decisions) for decisions in run.context.decisions.values())
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
        kinds=dict(audit.kinds),
    )


def _beats(run: ControlPlaneRun) -> dict[Agent, list[Beat]]:
    decode = msgspec.json.Decoder(Heartbeat).decode
    beats = defaultdict[Agent, list[Beat]](list)
    for (topic, _), records in run.context.broker.history.items():
        if topic == HEARTBEATS.name:
            for record in records:
                beat = decode(record.value)
                elapsed = dict(zip(beat.leases, beat.elapsed_ms, strict=True))
                beats[beat.node_id, beat.incarnation].append(Beat(record.timestamp, elapsed))
    return beats


def _diaries(run: ControlPlaneRun) -> dict[tuple[str, int], Any]:
    return {lease: diary for machine in run.machines for lease, diary in machine.diaries.items()}


def _ledger(run: ControlPlaneRun, books: SecondBooks) -> list[str]:
    """Billing has every line of the pool, once; bills are as prices of admission make them."""
    meter, violations = books.meter, list[str]()
    rows = Counter(msgspec.convert(row, LedgerLine) for row in run.ledger)
    if rows != meter.lines:
        violations.append(f"ledger: only in billing {rows - meter.lines}, not {meter.lines - rows}")
    known = books_on_log(run.context.decisions["account"])
    return violations + compare_bills(run.bills, rows, books.quota.charges, known)


ANSWERS_ROUNDING_MAX = 6 * PPM  # a line of each kind of tokens under each of a few books


def _bills_of_closed_months(
    run: ControlPlaneRun, accounts: AccountBooks, books: SecondBooks
) -> list[str]:
    """Whatever came when, all closed months together have billed each job's cost, once, and answers
    at the price that budgets counted.

    Only where months were closed after the last job had ended; what terms add, and what is no use
    of jobs, is not looked at.
    """
    if not run.plan.closings:
        return []
    billed, due = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    answers = _counted_answers(run)
    for tenant, book in accounts.tenants.items():
        for statement in book.closed.values():
            for bill in statement.bills:
                answered = sum(charge.amount_micro for charge in bill.answer_charges)
                answers[tenant, bill.currency, statement.period] -= answered * PPM
                beside = answered + sum(charge.amount_micro for charge in bill.storage_charges)
                beside += bill.contract_micro + bill.volume_micro
                beside += book.adjusted[statement.period, bill.currency]
                billed[tenant, bill.currency] += bill.amount_micro - beside
    for tenant, quota in books.quota.tenants.items():
        for charge in quota.charges.values():
            due[tenant, charge.currency] += charge.cost()
    if {key: n for key, n in billed.items() if n} != {key: n for key, n in due.items() if n}:
        return [f"month: closed months have billed {dict(billed)}, jobs cost {dict(due)}"]
    return [
        f"answers: {tenant}'s bill of {month} in {currency} is {rest} below what budgets counted"
        for (tenant, currency, month), rest in answers.items()
        if month in accounts.tenants[tenant].closed and abs(rest) > ANSWERS_ROUNDING_MAX
    ]


def _counted_answers(run: ControlPlaneRun) -> Counter[tuple[str, str, str]]:
    """Sum the counted cost of answers by tenant, currency and month, in 1e-12 of the currency."""
    counted = Counter[tuple[str, str, str]]()
    for decision in run.context.decisions["account"]:
        month = month_of(decision.header.at // HOUR_MS)
        for event in decision.events:
            for cost in event.costs if isinstance(event, AnswersCounted) else ():
                exact = cost.micro * PPM + cost.millionths
                counted[decision.header.key, cost.currency, month] += exact
    return counted


def _suspensions(run: ControlPlaneRun, quota: Quota) -> list[str]:
    """`job` holds tenants for suspended as `account` does."""
    known: dict[str, bool] = {}
    for decision in run.context.decisions["account"]:
        for event in decision.events:
            if isinstance(event, TenantSuspended | TenantResumed):
                known[decision.header.key] = isinstance(event, TenantSuspended)
    return [
        f"suspended: {tenant} is {suspended}, which `job` does not know"
        for tenant, suspended in known.items()
        if quota.tenants[tenant].suspended != suspended
    ]


def _prices_of_answers(run: ControlPlaneRun) -> list[str]:
    """Return counts of answers whose cost is not their tokens times the prices of their book."""
    books = {book.currency: book.answers for book in LATER_BOOKS}
    violations = list[str]()
    for decision in run.context.decisions["account"]:
        for event in decision.events:
            if not isinstance(event, AnswersCounted) or not event.costs:
                continue
            (cost,) = event.costs
            prices = books[cost.currency]
            assert prices is not None
            exact = sum(
                use.prompt_tokens * prices.prompt_micro_per_million
                + use.cached_tokens
                * (prices.cached_micro_per_million - prices.prompt_micro_per_million)
                + use.completion_tokens * prices.completion_micro_per_million
                for use in event.uses
            )
            if cost.micro * PPM + cost.millionths != exact:
                violations.append(f"answers: {cost} is said to be {exact}")
    return violations


def _answers(run: ControlPlaneRun) -> list[str]:
    """`job` charges what `account` has priced, once, in the month of its record."""
    priced, charged = Counter[tuple[str, str, int, int]](), Counter[tuple[str, str, int, int]]()
    for decision in run.context.decisions["account"]:
        for event in decision.events:
            if isinstance(event, AnswersCounted):
                hour = decision.header.at // HOUR_MS
                priced.update(_costs(decision.header.key, hour, event.costs))
    for decision in run.context.decisions["job"]:
        for event in decision.events:
            if isinstance(event, AnswersCharged):
                charged.update(_costs(decision.header.key, event.hour_utc, event.costs))
    if priced != charged:
        return [f"answers: not charged {priced - charged}, not priced {charged - priced}"]
    return []


def _costs(
    tenant: str, hour_utc: int, costs: Iterable[AnswerCost]
) -> Iterator[tuple[str, str, int, int]]:
    for cost in costs:
        yield tenant, cost.currency, hour_utc, cost.micro * PPM + cost.millionths


def _deliveries(run: ControlPlaneRun) -> list[str]:
    """Every end is announced to the tenant's endpoint once, and every delivery ends once."""
    due, over, of_ends, erased = Counter[str](), Counter[str](), 0, set[str]()
    for decision in run.context.decisions["account"]:
        for event in decision.events:
            if isinstance(event, TenantErasureBegun):
                erased.add(decision.header.key)
            if isinstance(event, DeliveryDue):
                due[event.delivery_id] += 1
                of_ends += event.endpoint_id == ENDPOINT
        over.update(
            event.report.delivery_id
            for event in decision.events
            if isinstance(event, DeliveryEnded)
        )
    ends = sum(
        isinstance(event, JobEnded)
        for decision in run.context.decisions["job"]
        for event in decision.events
    )
    complete = of_ends == ends if not erased else of_ends <= ends
    if run.finished and (due != over or not complete or max(due.values(), default=1) > 1):
        return [f"delivery: {ends} ends, {len(due)} due, {len(over)} over: {due - over}"]
    return []
