"""Lines of a bill: rounded so that those of a job add up to its cost."""

from msgspec.structs import replace

from schemas.billing import Rate
from tests.unit.tunery.billing.test_invoice import BOOKS, HOUR, MONTH, bill, credit, month, row
from tunery.billing.invoice import make_invoices
from tunery.billing.lines import select_usage
from tunery.billing.periods import BillShare
from tunery.plan.price import usage_micro


def test_money_c8_a_job_that_is_credited_entirely_costs_nothing() -> None:
    rows = [row(HOUR + hour, 1_234_567) for hour in range(7)]
    given_back = [credit(1_234_567, HOUR + hour) for hour in range(7)]
    assert bill(*rows, *given_back).amount_micro == 0
    assert bill(*rows).amount_micro == usage_micro(7 * 1_234_567 * 2_400_000)


def test_money_c8_the_bills_of_a_job_over_a_month_end_add_up_to_its_cost() -> None:
    november, december = row(MONTH.end_hour - 1, 1), row(MONTH.end_hour, 1)
    second = replace(month(), month=MONTH.following())
    usage = select_usage([november, december], BillShare(month=second.month))
    (invoice,) = make_invoices(second, usage, BOOKS)
    assert bill(november).amount_micro + invoice.amount_micro == usage_micro(2 * 2_400_000)


def test_serving_has_lines_of_its_own_at_its_own_rate() -> None:
    rate = Rate(lane="standard", gpu_hour_micro=600_000, role="serve")
    books = {"2026-11": replace(BOOKS["2026-11"], rates=(rate,))}
    rows = (row(), replace(row(job_id="sp_1-1"), role="serve"))
    usage = select_usage(rows, BillShare(month=MONTH))
    (invoice,) = make_invoices(month(), usage, books)
    described = [(line.description, line.amount_micro) for line in invoice.lines]
    assert described == [("training", 2_400_000), ("serving", 600_000)]
