"""Storage: from events to the cost of a month, rounded once."""

from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.billing import BillingTerms, Commitment, Discount, PriceBook, StorageCharge
from schemas.dataset import FileContent, FileDeleted, FileRegistered
from schemas.erasure import FilesErased, ModelsErased
from schemas.lifetime import VersionErased
from schemas.model import Lineage, VersionDeleted, VersionPublished, VersionSubmitted, VersionTerms
from schemas.sealed import Sealed
from schemas.session import CommandAnswered, SessionErased
from schemas.storage import FileTerms
from schemas.training import BlobFile
from schemas.units import DAY_MS, HOUR_MS
from services.registry.domain.lifetime import GRACE_MS
from tests.unit.tunery.billing.test_invoice import BOOKS, MONTH, month, row
from tunery.billing.invoice import Invoice, close_invoice, make_invoices
from tunery.billing.lines import select_usage
from tunery.billing.periods import BillShare, Period, period
from tunery.billing.storage import (
    GB,
    BookPeriod,
    StorageFact,
    StorageUse,
    StoredObject,
    gb_months,
    storage_charge,
    storage_facts,
    storage_of_month,
    storage_words,
)

FIRST, END = MONTH.first_hour * HOUR_MS, MONTH.end_ms
PRICED = {"2026-11": replace(BOOKS["2026-11"], storage_micro_per_gb_month=20_000)}
DAYS = 30
DOCS = Path(__file__).parents[4] / "docs"
SEALED = Sealed(key_id="k", nonce=b"", ciphertext=b"")
LINEAGE = Lineage(
    job_id="ftjob-1",
    base_id="b",
    base_sha256="",
    dataset_version="",
    training_sha256="",
    config_sha256="",
    steps=1,
    verdict="pass",
    scores_sha256="",
)
TERMS = VersionTerms(model_id="ft:1", series="s", lineage=LINEAGE)
ADAPTER = (
    BlobFile(name="adapter_model.safetensors", blob="x", sha256="", bytes=700),
    BlobFile(name="adapter_config.json", blob="y", sha256="", bytes=30),
)
FILE = FileRegistered(
    file_id="file-1",
    terms=FileTerms(purpose="fine-tune", name=SEALED),
    content=FileContent(bytes=10, sha256="", blob="z"),
)


def gb(since: int = 0, until: int = END) -> StoredObject:
    return StoredObject(bytes=GB, since=since, until=until)


def kept(*objects: StoredObject, now: int = END) -> int:
    return byte_hours(objects, MONTH, now)


def byte_hours(objects: Iterable[StoredObject], whole: Period, now: int) -> int:
    """Byte-hours of a tenant that has had one price book all the time."""
    uses = storage_of_month(objects, [BookPeriod(0, "2026-11")], whole, now)
    return sum(use.byte_hours for use in uses)


def invoice(use: StorageUse, books: dict[str, PriceBook], **changes: Any) -> Invoice:
    (made_out,) = make_invoices(
        replace(month(), storage=(use,), **changes),
        select_usage([row()], BillShare(month=MONTH)),
        books,
    )
    return made_out


@pytest.mark.parametrize(
    ("event", "fact"),
    [
        (FILE, ("file-1", 10)),
        (FileDeleted(file_id="file-1", blob="z", report_blob=None), ("file-1", None)),
        (VersionPublished(terms=TERMS, files=ADAPTER, quarantined=False), ("ft:1", 730)),
        (VersionDeleted(model_id="ft:1"), ("ft:1", None)),
        (VersionSubmitted(terms=TERMS, adapter=ADAPTER), None),
    ],
)
def test_money_b3_files_and_models_are_kept_until_they_are_deleted(
    event: Any, fact: tuple[str, int | None] | None
) -> None:
    assert storage_facts("acme", event) == (() if fact is None else (fact,))


def test_tinker_what_a_session_saved_is_kept_until_it_is_erased() -> None:
    """One object at a time has the bytes of all that it saved."""

    def saved(saves: int, saved_bytes: int) -> tuple[StorageFact, ...]:
        event = CommandAnswered(name="1", answer=ADAPTER[0], saves=saves, saved_bytes=saved_bytes)
        return storage_facts("session-1", event)

    assert saved(0, 0) == ()
    assert saved(1, 10) == (("session-1/1", 10),)
    assert saved(2, 25) == (("session-1/1", None), ("session-1/2", 25))
    assert storage_facts("session-1", SessionErased(saves=2)) == (("session-1/2", None),)
    assert storage_facts("session-1", SessionErased()) == (), "it has saved nothing"


def test_security_h4_what_an_erased_tenant_kept_is_kept_no_more() -> None:
    assert storage_facts("acme", FilesErased(files=("file-1", "file-2"))) == (
        ("file-1", None),
        ("file-2", None),
    )
    assert storage_facts("acme", ModelsErased(models=("ft:1",))) == (("ft:1", None),)


def test_money_b3_only_the_time_inside_the_month_counts() -> None:
    assert kept(gb()) == kept(gb(FIRST)) == DAYS * 24 * GB
    assert kept(gb(END - HOUR_MS)) == kept(gb(until=FIRST + HOUR_MS)) == GB
    assert kept(gb(until=FIRST)) == kept(gb(END)) == 0
    assert kept(gb(), now=FIRST + DAY_MS) == 24 * GB
    assert kept(gb(END - 1), gb(until=FIRST + 1)) == round(2 * GB / HOUR_MS)


def test_money_b3_a_gigabyte_costs_its_price_in_every_month() -> None:
    for name in ("2026-02", "2026-11", "2026-12"):
        whole = period(name)
        use = StorageUse(
            price_version="2026-11", byte_hours=byte_hours([gb(0, 2**60)], whole, 2**60)
        )
        charge = storage_charge(use, whole, PRICED)
        assert charge is not None
        assert (charge.amount_micro, gb_months(charge, whole)) == (20_000, Decimal(1))


def test_money_b3_storage_without_a_price_is_not_billed() -> None:
    use = StorageUse(price_version="2026-11", byte_hours=GB)
    assert storage_charge(use, MONTH, dict(BOOKS)) is None
    assert storage_charge(StorageUse(byte_hours=GB), MONTH, PRICED) is None
    assert storage_charge(StorageUse(price_version="2026-11"), MONTH, PRICED) is None


def test_money_b3_storage_is_a_part_of_the_total_and_of_the_commitment() -> None:
    use = StorageUse(price_version="2026-11", byte_hours=DAYS * 24 * GB)
    bill = invoice(use, PRICED)
    (charge,) = bill.storage
    assert (charge.amount_micro, bill.amount_micro) == (20_000, 2_420_000)
    assert close_invoice(bill).storage_charges == bill.storage
    least = Commitment(reference="K", amount_micro=2_420_001, currency="EUR")
    assert invoice(use, PRICED, terms=BillingTerms(commitment=least)).amount_micro == 2_420_001
    free = BillingTerms(discounts=(Discount(reference="K", rate_ppm=1_000_000),))
    assert invoice(use, PRICED, terms=free).amount_micro == 20_000


def test_money_b3_storage_is_on_the_invoice_in_the_currency_of_its_book() -> None:
    dollars = replace(PRICED["2026-11"], version="usd", currency="USD")
    use = StorageUse(price_version="usd", byte_hours=DAYS * 24 * GB)
    usage = select_usage([row()], BillShare(month=MONTH))
    bills = make_invoices(replace(month(), storage=(use,)), usage, {**BOOKS, "usd": dollars})
    assert [(bill.currency, bool(bill.storage)) for bill in bills] == [
        ("EUR", False),
        ("USD", True),
    ]


def test_a_line_of_storage_says_how_much_and_at_what_price() -> None:
    charge = StorageCharge(
        price_version="v", byte_hours=1_234 * GB, micro_per_gb_month=20_000, amount_micro=1
    )
    words = "files, models and sessions, 1,234.000000 GB-hours at 0.02 a GB-month"
    assert storage_words(charge) == words


def test_review2_m3_each_book_prices_what_was_kept_while_it_held() -> None:
    """A gigabyte all month; on the 11th the plan moves to a dearer book, on the 21st to dollars."""
    books = {
        "2026-11": PRICED["2026-11"],
        "dear": replace(PRICED["2026-11"], version="dear", storage_micro_per_gb_month=90_000),
        "usd": replace(PRICED["2026-11"], version="usd", currency="USD"),
    }
    moves = ((0, "2026-11"), (FIRST + 10 * DAY_MS, "dear"), (FIRST + 20 * DAY_MS, "usd"))
    held = [BookPeriod(*move) for move in moves]
    uses = storage_of_month([gb()], reversed(held), MONTH, END)
    assert [use.byte_hours for use in uses] == [10 * 24 * GB] * 3
    none = select_usage([], BillShare(month=MONTH))
    euros, dollars = make_invoices(replace(month(), storage=uses), none, books)
    assert [charge.amount_micro for charge in euros.storage] == [6_667, 30_000]
    assert [charge.amount_micro for charge in dollars.storage] == [6_667]
    assert storage_of_month([gb()], held, MONTH, FIRST + 10 * DAY_MS) == uses[:1], "so far"
    back = storage_of_month([gb()], [*held, BookPeriod(END - DAY_MS, "2026-11")], MONTH, END)
    assert [use.byte_hours // GB for use in back] == [11 * 24, 10 * 24, 9 * 24]


@pytest.mark.parametrize(
    ("deleted", "erased_days_later", "gb_hours"),
    [(10, 30, 40 * 24), (1, 30, 31 * 24), (10, 0, 10 * 24)],
)
def test_review2_m7_a_deleted_model_is_billed_until_its_files_are_erased(
    deleted: int, erased_days_later: int, gb_hours: int
) -> None:
    """30 days after its deletion, or at once with `--erase`; the pages say so with one sentence."""
    at = FIRST + deleted * DAY_MS
    if erased_days_later:
        restorable = VersionDeleted(
            model_id="ft:1", files=(), job_id="j", erase_at=at + erased_days_later * DAY_MS
        )
        assert storage_facts("acme", restorable) == (), "its files are still there"
        ending: Any = VersionErased(model_id="ft:1", files=(), job_id="j")
    else:
        ending = VersionDeleted(model_id="ft:1")
    assert storage_facts("acme", ending) == (("ft:1", None),)
    model = gb(FIRST, at + erased_days_later * DAY_MS)
    two_months = [MONTH, MONTH.following()]
    assert sum(byte_hours([model], part, part.end_ms) for part in two_months) == gb_hours * GB
    sentence = (
        "A deleted model is billed until its files are erased: 30 days after the deletion, "
        "or at once with `--erase`."
    )
    for page in ("reference/billing.md", "how-to/promote.md"):
        assert sentence in (DOCS / page).read_text()
    assert GRACE_MS == 30 * DAY_MS
