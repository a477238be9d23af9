"""Lines of a bill: rounded so that those of a job add up to its cost."""

from msgspec.structs import replace

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
