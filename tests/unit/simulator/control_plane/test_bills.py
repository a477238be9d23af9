"""Second bills: priced by admission, one for each month and currency."""

from collections import Counter
from datetime import UTC, datetime

from msgspec.structs import replace

from schemas.units import HOUR_MS
from simulator.control_plane.bills import (
    LATER_BOOKS,
    books_on_log,
    compare_bills,
    make_bills,
    own_books,
)
from simulator.control_plane.quota_books import Charged
from simulator.control_plane.usage_books import LedgerLine

EURO, DOLLAR = LATER_BOOKS
BOOKS = {book.version: book for book in LATER_BOOKS}
DECEMBER = int(datetime(2023, 12, 1, tzinfo=UTC).timestamp()) // 3_600


def line(job_id: str, version: str, hour_utc: int, gpu_ms: int) -> LedgerLine:
    return LedgerLine(
        tenant="acme",
        job_id=job_id,
        attempt=1,
        role="train",
        lane="standard",
        price_version=version,
        lease=1,
        hour_utc=hour_utc,
        kind="usage",
        cause="",
        used_gpu_ms=gpu_ms,
        gpu_ms=gpu_ms,
        device="cpu",
        accelerator="",
        spot=False,
        tokens=0,
    )


def charged(version: str, gpu_ms: int) -> Charged:
    book = BOOKS[version]
    return Charged(
        key_id=None,
        price_version=version,
        lane="standard",
        currency=book.currency,
        gpu_hour_micro=book.gpu_hour_micro["standard"],
        time=gpu_ms * book.gpu_hour_micro["standard"],
    )


LINES = Counter(
    (
        line("ftjob-1", EURO.version, DECEMBER - 1, 1_000_003),
        line("ftjob-1", EURO.version, DECEMBER, 777_777),
        line("ftjob-2", DOLLAR.version, DECEMBER, HOUR_MS),
    )
)
CHARGES = {
    "ftjob-1": charged(EURO.version, 1_777_780),
    "ftjob-2": charged(DOLLAR.version, HOUR_MS),
}
LEDGER = [{name: getattr(row, name) for name in row.__struct_fields__} for row in LINES]


def compare(lines: Counter[LedgerLine] = LINES, charges: dict[str, Charged] = CHARGES) -> list[str]:
    return compare_bills(make_bills(LEDGER, BOOKS), lines, charges, BOOKS)


def test_a_month_has_one_bill_for_each_currency_and_they_are_right() -> None:
    bills = make_bills(LEDGER, BOOKS)
    assert [bill.key[1:] for bill in bills] == [
        ("2023-11", "EUR"),
        ("2023-12", "EUR"),
        ("2023-12", "USD"),
    ]
    assert compare() == []


def test_a_job_that_is_billed_by_another_book_than_its_admissions_is_found() -> None:
    charges = {**CHARGES, "ftjob-2": charged(EURO.version, HOUR_MS)}
    assert {why.partition(":")[0] for why in compare(charges=charges)} == {"price", "invoice"}


def test_an_admission_at_a_price_that_is_not_in_its_book_is_found() -> None:
    wrong = replace(EURO, gpu_hour_micro={**EURO.gpu_hour_micro, "standard": 1})
    books = {**BOOKS, EURO.version: wrong}
    said = compare_bills(make_bills(LEDGER, BOOKS), LINES, CHARGES, books)
    assert {why.partition(":")[0] for why in said} == {"price"}


def test_our_books_are_on_the_log_from_the_start() -> None:
    assert books_on_log(()) == own_books()
