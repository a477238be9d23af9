"""Ledger rows: integers copied, keys that cannot be there twice."""

import sqlite3

from schemas.account import (
    BillingTermsSet,
    CreditNoteIssued,
    InvoiceAdjusted,
    InvoiceClosed,
    Limits,
    PeriodEnded,
    PlanSet,
    PlanTerms,
)
from schemas.answers import AnswersCounted, AnswerUse
from schemas.billing import BillingTerms, CreditNote, InvoiceAdjustment, Statement
from schemas.envelope import Header
from schemas.job import SetLimits
from schemas.pool import LeaseRef, MemberFreed, NodeRetired, Token, UsageCredited, UsageSliced
from services.billing.project import ANSWERS_DDL, project_ledger, project_tenants
from services.billing.react import react_account
from tunery.runtime.verbs import Done, Todo, Upsert

LEASE = LeaseRef(
    token=Token(pool="default", lease=2),
    tenant="acme",
    job_id="ftjob-1",
    attempt=1,
    role="train",
    lane="premium",
    price_version="2026-11",
)


def header(offset: int = 7) -> Header:
    return Header(
        stream="pool",
        partition=3,
        offset=offset,
        at=99,
        key="default",
        tenant="",
        seq=1,
        command_id="c",
        incarnation=0,
    )


def sliced(hour_utc: int = 5) -> UsageSliced:
    return UsageSliced(
        lease=LEASE,
        hour_utc=hour_utc,
        used_gpu_ms=90,
        billable_gpu_ms=80,
    )


def credited() -> UsageCredited:
    return UsageCredited(
        lease=LEASE,
        hour_utc=5,
        lost_gpu_ms=30,
        cause="lost",
    )


def upsert(event: object, at: Header) -> Upsert:
    (change,) = project_ledger(at, event)
    assert isinstance(change, Upsert)
    return change


def test_use_and_credit_are_copied() -> None:
    used, lost = upsert(sliced(), header()), upsert(credited(), header())
    assert (used.values["used_gpu_ms"], used.values["gpu_ms"]) == (90, 80)
    assert (lost.values["used_gpu_ms"], lost.values["gpu_ms"]) == (0, -30)
    assert used.values["tenant"] == "acme"
    assert used.key["kind"] == "usage"
    assert lost.key["kind"] == "credit"


def test_events_of_one_record_and_of_two_records_have_keys_of_their_own() -> None:
    changes = [
        upsert(event, header(offset))
        for offset in (7, 8)
        for event in (sliced(5), sliced(6), credited())
    ]
    assert len({tuple(sorted(change.key.items())) for change in changes}) == len(changes)


def test_other_events_cost_nothing() -> None:
    freed = MemberFreed(lease=LEASE, node_id="a")
    for event in (NodeRetired(node_id="a"), freed):
        assert project_ledger(header(), event) == ()


def test_a_new_plan_reaches_the_tenants_table_and_job() -> None:
    limits = Limits(soft_gpu_ms=1, hard_gpu_ms=2, concurrency=3)
    plan = PlanSet(terms=PlanTerms(lane="free", limits=limits, price_version="2026-11"))
    at = header()
    change, held = project_tenants(at, plan)
    assert isinstance(change, Upsert)
    assert change.values["soft_gpu_ms"] == 1
    key = {"tenant": "default", "since": 99}
    assert held == Upsert("held_books", key, {"price_version": "2026-11"})
    (send,) = react_account(at, plan)
    assert send.stream == "job"
    assert send.body == SetLimits(
        terms=PlanTerms(lane="free", limits=limits, price_version="2026-11")
    )


def test_review2_m3_a_scheduled_plan_holds_from_its_moment_and_not_from_its_event() -> None:
    limits = Limits(soft_gpu_ms=1, hard_gpu_ms=2, concurrency=3)
    terms = PlanTerms(lane="free", limits=limits, price_version="2026-12")
    _, held = project_tenants(header(), PlanSet(terms=terms, effective_at=90))
    key = {"tenant": "default", "since": 90}
    assert held == Upsert("held_books", key, {"price_version": "2026-12"})


def test_a_month_that_has_ended_is_to_be_closed_until_it_is() -> None:
    ended = PeriodEnded(period="2026-11", soft_gpu_ms=1, before=None)
    month, todo = project_tenants(header(), ended)
    assert isinstance(todo, Todo)
    assert isinstance(month, Upsert)
    assert month.values == {"ended": ended}
    statement = Statement(
        period="2026-11", cut=(0,) * 8, currency="EUR", soft_gpu_ms=1, gpu_ms=2, amount_micro=3
    )
    row, done = project_tenants(header(), InvoiceClosed(statement=statement))
    assert done == Done(todo.kind, todo.id)
    assert isinstance(row, Upsert)
    assert row.values == {"statement": statement, "closed_at": 99}


def test_an_adjustment_is_a_row_of_its_month() -> None:
    adjusted = InvoiceAdjusted(
        period="2026-11",
        adjustment=InvoiceAdjustment(
            reference="T-1", amount_micro=-5, currency="EUR", reason="goodwill"
        ),
    )
    (row,) = project_tenants(header(), adjusted)
    assert isinstance(row, Upsert)
    assert row.key == {"tenant": "default", "period": "2026-11", "reference": "T-1"}
    assert row.values["amount_micro"] == -5


def test_billing_terms_and_credit_notes_are_rows() -> None:
    terms = BillingTerms(due_days=14)
    (row,) = project_tenants(header(), BillingTermsSet(terms=terms, from_month="2026-12"))
    key = {"tenant": "default", "from_month": "2026-12"}
    assert row == Upsert("billing_terms", key, {"terms": terms})
    note = CreditNote(
        number="acme-C0001",
        invoice="acme-0001",
        adjustment=InvoiceAdjustment(
            reference="T-1", amount_micro=-5, currency="EUR", reason="correction"
        ),
        net_micro=-10_000,
        taxes=(),
        total_micro=-10_000,
        issued_at=99,
    )
    (row,) = project_tenants(header(), CreditNoteIssued(period="2026-11", note=note))
    key = {"tenant": "default", "number": "acme-C0001"}
    assert row == Upsert("credit_notes", key, {"period": "2026-11", "note": note})


def test_tokens_from_memory_may_be_known_after_the_question_was_counted() -> None:
    """vLLM says so with an answer's end, which may be seconds and a record later."""
    use = AnswerUse(
        key_id="key-1",
        model="smol",
        requests=0,
        prompt_tokens=0,
        cached_tokens=8,
        completion_tokens=2,
        engine_ms=1,
    )
    (kept,) = project_tenants(header(8), AnswersCounted(uses=(use,)))
    assert isinstance(kept, Upsert)
    row = {**kept.key, **kept.values}
    database = sqlite3.connect(":memory:")
    database.execute(ANSWERS_DDL)
    names = ", ".join(f":{name}" for name in row)
    database.execute(f"INSERT INTO answers ({', '.join(row)}) VALUES ({names})", row)  # noqa: S608  # ours
    assert database.execute("SELECT cached_tokens FROM answers").fetchall() == [(8,)]
    database.close()
