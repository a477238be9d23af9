"""Expected and actual cost of a job."""

import pytest
from msgspec.structs import replace

from schemas.billing import PriceBook, Rate
from services.gateway.jobs.domain.cost_responses import (
    cost_response,
    estimate_response,
    no_estimate_response,
)
from services.gateway.jobs.domain.responses import job_response
from services.gateway.views.tables.jobs import JOBS, UsageRow
from services.gateway.web.domain.errors import refused
from tests.unit.services.gateway.jobs.job_events import HELD, JOB, SPEC, SUBMITTED
from tests.unit.services.gateway.view_rows import folded, only
from tunery.billing.invoice import BilledMonth, make_invoices
from tunery.billing.lines import LedgerRow, select_usage
from tunery.billing.periods import BillShare, period

ESTIMATE = HELD.estimate
USED = UsageRow(
    tenant="acme",
    job_id=JOB,
    id="1",
    at=1,
    attempt=1,
    role="train",
    lane="premium",
    price_version="2026-11",
    hour_utc=1,
    kind="usage",
    used_gpu_ms=90_000,
    billable_gpu_ms=90_000,
    cause=None,
    journal_partition=0,
    incarnation=0,
    journal_offset=1,
    device="cpu",
    accelerator="",
    spot=False,
    tokens=0,
)


def test_cost_sums_lines_and_keeps_credits_apart() -> None:
    row = only(folded("job", SUBMITTED, HELD), JOBS)
    usage = USED
    credit = replace(usage, kind="credit", used_gpu_ms=0, billable_gpu_ms=-30_000)
    lines = [usage, credit]
    cost = cost_response(row, lines)
    assert (cost.billable_gpu_ms, cost.credited_gpu_ms) == (90_000, 30_000)
    assert cost.net_gpu_ms == 60_000
    assert cost.amount_micro == 53_333  # of 60,000 GPU-ms, rounded once: the sum of the lines
    rates = (Rate(lane="premium", gpu_hour_micro=1_000_000, spot=True),)
    rated = replace(row, spec=replace(row.spec, price=replace(row.spec.price, rates=rates)))
    spot = replace(usage, spot=True)
    cost = cost_response(rated, [spot, replace(credit, spot=True), usage])
    assert [line.gpu_hour_micro for line in cost.lines] == [1_000_000, 1_000_000, 3_200_000]
    assert cost.amount_micro == 96_667  # 60,000 GPU-ms at the rate and 90,000 at the lane's price


@pytest.mark.parametrize(
    "slices",
    [
        (15_893, 31_721),
        (22_101, 25_079),
        (60_170, 24_779),
        (79_482, 38_183),
        (1, 1, 1),
        (3_600_000,),
    ],
)
def test_first_hour_03_a_job_has_one_price_wherever_it_is_shown(slices: tuple[int, ...]) -> None:
    """`job show` was one millionth above `GET …/cost` and the invoice in 5 of 11 jobs."""
    price = SPEC.price
    month = period("2026-11")
    book = PriceBook(
        version=price.version,
        currency=price.currency,
        gpu_hour_micro={"premium": price.gpu_hour_micro, "standard": 0, "free": 0},
        token_micro_per_million=0,
    )
    row = only(folded("job", SUBMITTED, HELD), JOBS)
    row = replace(row, billable_gpu_ms=sum(slices), micro_gpu_ms=sum(slices) * price.gpu_hour_micro)
    lines = [replace(USED, used_gpu_ms=ms, billable_gpu_ms=ms) for ms in slices]
    ledger = [
        LedgerRow(
            kind="usage",
            job_id=JOB,
            role="train",
            lane="premium",
            price_version=price.version,
            hour_utc=month.first_hour + hour,
            used_gpu_ms=ms,
            gpu_ms=ms,
        )
        for hour, ms in enumerate(slices)
    ]
    billed = BilledMonth(tenant="acme", month=month, soft_gpu_ms=None, currency=price.currency)
    (invoice,) = make_invoices(
        billed, select_usage(ledger, BillShare(month=month)), {price.version: book}
    )
    shown = job_response(row, lambda *_: None).cost.amount_micro
    assert shown == cost_response(row, lines).amount_micro == invoice.amount_micro


def test_a_job_that_has_not_run_has_cost_nothing() -> None:
    cost = cost_response(only(folded("job", SUBMITTED), JOBS), [])
    assert (cost.net_gpu_ms, cost.amount_micro, cost.final) == (0, 0, False)
    assert (cost.lines, cost.estimate) == ([], None)


def test_tokens_are_charged_where_they_have_a_price() -> None:
    price = replace(SPEC.price, token_micro_per_million=2_000_000)
    row = only(folded("job", replace(SUBMITTED, spec=replace(SPEC, price=price))), JOBS)
    line = replace(USED, used_gpu_ms=0, billable_gpu_ms=0, tokens=500_000)
    cost = cost_response(replace(row, phase="done", trained_tokens=600_000), [line])
    assert (cost.amount_micro, cost.trained_tokens, cost.final) == (1_000_000, 600_000, True)
    assert (cost.billed_tokens, cost.lines[0].tokens) == (500_000, 500_000)


def test_an_estimate_ends_when_all_slots_have_done_their_share() -> None:
    """An evaluation has one, whatever the training had."""
    took_ms = ESTIMATE.train_gpu_ms // 2 + ESTIMATE.eval_gpu_ms
    shown = estimate_response(replace(SPEC, slots=2), ESTIMATE, starts_at=5_000)
    assert shown.expected_duration_seconds == took_ms // 1_000
    assert shown.estimated_start == 5_000
    assert shown.estimated_finish == 5_000 + took_ms
    assert shown.allowed_to_proceed


def test_an_unknown_start_has_no_finish() -> None:
    shown = estimate_response(SPEC, ESTIMATE, starts_at=None)
    assert (shown.estimated_start, shown.estimated_finish) == (None, None)


def test_an_estimate_of_a_refused_job_says_why_it_may_not_proceed() -> None:
    refusal = refused("budget_too_small", "Raise the budget.", "budget")
    shown = estimate_response(SPEC, ESTIMATE, None, refusal)
    assert not shown.allowed_to_proceed
    assert (shown.refusal, shown.refusal_code) == ("Raise the budget.", "budget_too_small")


def test_without_an_estimate_the_parameters_are_still_shown() -> None:
    shown = no_estimate_response(SPEC, "train_file_not_validated")
    assert (shown.estimation_available, shown.unavailable_reason) == (
        False,
        "train_file_not_validated",
    )
    assert (shown.hyperparameters.n_epochs, shown.price.currency) == (2, "EUR")
