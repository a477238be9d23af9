"""Tokens of answers: what they cost by the book of the tenant, on the invoice of their month."""

import pytest
from msgspec.structs import replace

from schemas.answers import AnswerCost, AnswerUse
from schemas.billing import AnswerPrices, BillingTerms, Commitment, Discount, Statement
from schemas.units import AMOUNT_MICRO_MAX, PPM
from tests.unit.tunery.billing.test_invoice import BOOKS, MONTH, month, row
from tunery.billing.answers import (
    AnswersOfMonth,
    answer_charge,
    answer_costs,
    answer_parts,
    answer_words,
    prices_of,
)
from tunery.billing.invoice import close_invoice, is_billable, make_invoices
from tunery.billing.lines import select_usage
from tunery.billing.periods import BillShare

PRICES = AnswerPrices(
    prompt_micro_per_million=200_000,
    cached_micro_per_million=50_000,
    completion_micro_per_million=600_000,
)
PRICED = {"2026-11": replace(BOOKS["2026-11"], answers=PRICES)}
USE = AnswersOfMonth(
    price_version="2026-11",
    prompt_tokens=3_000_000,
    cached_tokens=1_000_000,
    completion_tokens=500_000,
)


def test_each_kind_of_token_has_its_price_and_tokens_from_memory_are_not_paid_twice() -> None:
    charge = answer_charge(USE, PRICED)
    assert charge is not None
    parts = answer_parts(charge)
    assert [(part.tokens, part.amount_micro) for part in parts] == [
        (2_000_000, 400_000),
        (1_000_000, 50_000),
        (500_000, 300_000),
    ]
    assert charge.amount_micro == 750_000
    assert answer_words(parts[0]) == "answers, 2,000,000 tokens read at 0.20 a million"


def counted(key_id: str = "key_1", read: int = 0, cached: int = 0, written: int = 0) -> AnswerUse:
    return AnswerUse(
        key_id=key_id,
        model="base",
        requests=1,
        prompt_tokens=read,
        cached_tokens=cached,
        completion_tokens=written,
        engine_ms=1,
    )


def test_a_count_costs_each_key_its_tokens_exactly() -> None:
    book = PRICED["2026-11"]
    uses = (counted(read=7, written=2), counted("key_2", read=3, cached=3), counted(read=1))
    assert answer_costs(uses, book) == (
        AnswerCost(key_id="key_1", currency=book.currency, micro=2, millionths=800_000),
        AnswerCost(key_id="key_2", currency=book.currency, micro=0, millionths=150_000),
    )
    assert answer_costs(uses, replace(book, answers=None)) == answer_costs(uses, None) == ()
    assert answer_costs((counted(),), book) == ()


def test_tokens_that_turn_out_to_be_from_memory_are_taken_off() -> None:
    (cost,) = answer_costs((counted(cached=1),), PRICED["2026-11"])
    assert cost.micro * PPM + cost.millionths == 50_000 - 200_000
    assert (cost.micro, cost.millionths) == (-1, 850_000)


def test_a_count_beyond_belief_stays_an_integer_that_the_log_can_carry() -> None:
    (cost,) = answer_costs((counted(written=2**63 - 1),), PRICED["2026-11"])
    assert (cost.micro, cost.millionths) == (AMOUNT_MICRO_MAX, 0)


def test_parts_are_rounded_to_even_and_add_up() -> None:
    few = replace(USE, prompt_tokens=5, cached_tokens=0, completion_tokens=0)
    half = replace(PRICED["2026-11"], answers=replace(PRICES, prompt_micro_per_million=100_000))
    charge = answer_charge(few, {"2026-11": half})
    assert charge is not None
    assert (charge.amount_micro, len(answer_parts(charge))) == (0, 1), "half a millionth"


def test_what_was_in_memory_is_taken_off_a_question_of_the_month_before() -> None:
    late = replace(USE, prompt_tokens=0, cached_tokens=1_000_000, completion_tokens=0)
    charge = answer_charge(late, PRICED)
    assert charge is not None
    assert [part.amount_micro for part in answer_parts(charge)] == [-200_000, 50_000]
    assert charge.amount_micro == -150_000


def test_answers_without_a_price_are_not_billed() -> None:
    assert answer_charge(USE, dict(BOOKS)) is None
    assert answer_charge(replace(USE, price_version=""), PRICED) is None
    assert answer_charge(AnswersOfMonth(price_version="2026-11"), PRICED) is None
    assert [*prices_of(None)] == []


def test_answers_are_a_part_of_the_total_and_of_the_commitment() -> None:
    usage = select_usage([row()], BillShare(month=MONTH))
    (bill,) = make_invoices(replace(month(), answers=(USE,)), usage, PRICED)
    (without,) = make_invoices(month(), usage, PRICED)
    assert bill.amount_micro == without.amount_micro + 750_000
    assert close_invoice(bill).answer_charges == bill.answers
    least = Commitment(reference="K", amount_micro=bill.amount_micro + 1, currency="EUR")
    committed = replace(month(), answers=(USE,), terms=BillingTerms(commitment=least))
    assert make_invoices(committed, usage, PRICED)[0].amount_micro == bill.amount_micro + 1
    free = BillingTerms(discounts=(Discount(reference="K", rate_ppm=1_000_000),))
    (free_jobs,) = make_invoices(replace(month(), answers=(USE,), terms=free), usage, PRICED)
    assert free_jobs.amount_micro == 750_000


def test_a_month_of_answers_alone_is_an_invoice_in_the_currency_of_its_book() -> None:
    none = select_usage([], BillShare(month=MONTH))
    (bill,) = make_invoices(replace(month(), answers=(USE,)), none, PRICED)
    assert is_billable(bill)
    dollars = replace(PRICED["2026-11"], version="usd", currency="USD")
    use, usage = replace(USE, price_version="usd"), select_usage([row()], BillShare(month=MONTH))
    bills = make_invoices(replace(month(), answers=(use,)), usage, {**BOOKS, "usd": dollars})
    assert [(bill.currency, bool(bill.answers)) for bill in bills] == [
        ("EUR", False),
        ("USD", True),
    ]


def priced(prompt: int, cached: int, completion: int) -> AnswerPrices:
    return AnswerPrices(
        prompt_micro_per_million=prompt,
        cached_micro_per_million=cached,
        completion_micro_per_million=completion,
    )


@pytest.mark.parametrize("dearer", [2, 10, 1_000])
def test_review2_m3_a_later_plan_changes_no_price_of_answers(dearer: int) -> None:
    """9 million tokens under a budget of 10 EUR cost what the budget has counted: 9.00."""
    old = replace(BOOKS["2026-11"], version="old", answers=priced(1_000_000, 0, 1_000_000))
    new = replace(old, version="new", answers=priced(dearer * 1_000_000, 0, 1_000_000))
    dollars = replace(new, version="usd", currency="USD")
    (cost,) = answer_costs((counted(read=9_000_000),), old)
    uses = (
        AnswersOfMonth(price_version="old", prompt_tokens=9_000_000),
        AnswersOfMonth(price_version="new", prompt_tokens=1),
        AnswersOfMonth(price_version="usd", completion_tokens=2),
    )
    books = {book.version: book for book in (*BOOKS.values(), old, new, dollars)}
    none = select_usage([], BillShare(month=MONTH))
    euros, others = make_invoices(replace(month(), answers=uses), none, books)
    assert [charge.amount_micro for charge in euros.answers] == [cost.micro, dearer]
    assert (euros.amount_micro, cost.micro) == (9_000_000 + dearer, 9_000_000)
    assert (others.currency, others.amount_micro) == ("USD", 2)


def test_review2_m3_a_month_that_was_closed_by_one_book_stays_as_it_was_closed() -> None:
    """Bills of earlier versions had one charge of a month, by the book of its end."""
    none = select_usage([], BillShare(month=MONTH))
    (open_invoice,) = make_invoices(replace(month(), answers=(USE,)), none, PRICED)
    bill = close_invoice(open_invoice)
    old = replace(bill, answers=bill.answer_charges[0], answer_charges=())
    statement = Statement(
        period=MONTH.name,
        cut=(0,),
        currency="EUR",
        soft_gpu_ms=0,
        gpu_ms=0,
        amount_micro=bill.amount_micro,
        bills=(old,),
    )
    dearer = replace(PRICED["2026-11"], version="new", answers=priced(10**9, 0, 0))
    uses = (replace(USE, price_version="new"), USE)
    closed = replace(month(), answers=uses, statement=statement)
    (shown,) = make_invoices(closed, none, {**PRICED, "new": dearer})
    assert (shown.answers, shown.amount_micro) == (bill.answer_charges, bill.amount_micro)
