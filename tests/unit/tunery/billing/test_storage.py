"""What is kept in storage: from events to the cost of a month, rounded once."""

from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.billing import BillingTerms, Commitment, Discount, PriceBook, StorageCharge
from schemas.dataset import (
    FileContent,
    FileDeleted,
    FileRegistered,
)
from schemas.erasure import FilesErased, ModelsErased
from schemas.model import Lineage, VersionDeleted, VersionPublished, VersionSubmitted, VersionTerms
from schemas.sealed import Sealed
from schemas.storage import FileTerms
from schemas.training import BlobFile
from schemas.units import DAY_MS, HOUR_MS
from tests.unit.tunery.billing.test_invoice import BOOKS, MONTH, month, row
from tunery.billing.invoice import Invoice, close_invoice, make_invoices
from tunery.billing.lines import select_usage
from tunery.billing.periods import BillShare, period
from tunery.billing.storage import (
    GB,
    StorageUse,
    StoredObject,
    gb_months,
    kept_byte_hours,
    storage_charge,
    storage_facts,
    storage_words,
)

FIRST, END = MONTH.first_hour * HOUR_MS, MONTH.end_ms
PRICED = {"2026-11": replace(BOOKS["2026-11"], storage_micro_per_gb_month=20_000)}
DAYS = 30
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
    return kept_byte_hours(objects, MONTH, now)


def invoice(use: StorageUse, books: dict[str, PriceBook], **changes: Any) -> Invoice:
    (made_out,) = make_invoices(
        replace(month(), storage=use, **changes),
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
    assert storage_facts(event) == (() if fact is None else (fact,))


def test_security_h4_what_an_erased_tenant_kept_is_kept_no_more() -> None:
    assert storage_facts(FilesErased(files=("file-1", "file-2"))) == (
        ("file-1", None),
        ("file-2", None),
    )
    assert storage_facts(ModelsErased(models=("ft:1",))) == (("ft:1", None),)


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
            price_version="2026-11", byte_hours=kept_byte_hours([gb(0, 2**60)], whole, 2**60)
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
    assert bill.storage is not None
    assert (bill.storage.amount_micro, bill.amount_micro) == (20_000, 2_420_000)
    assert close_invoice(bill).storage == bill.storage
    least = Commitment(reference="K", amount_micro=2_420_001, currency="EUR")
    assert invoice(use, PRICED, terms=BillingTerms(commitment=least)).amount_micro == 2_420_001
    free = BillingTerms(discounts=(Discount(reference="K", rate_ppm=1_000_000),))
    assert invoice(use, PRICED, terms=free).amount_micro == 20_000


def test_money_b3_storage_is_on_the_invoice_in_the_currency_of_its_book() -> None:
    dollars = replace(PRICED["2026-11"], version="usd", currency="USD")
    use = StorageUse(price_version="usd", byte_hours=DAYS * 24 * GB)
    usage = select_usage([row()], BillShare(month=MONTH))
    bills = make_invoices(replace(month(), storage=use), usage, {**BOOKS, "usd": dollars})
    assert [(bill.currency, bill.storage is not None) for bill in bills] == [
        ("EUR", False),
        ("USD", True),
    ]


def test_a_line_of_storage_says_how_much_and_at_what_price() -> None:
    charge = StorageCharge(
        price_version="v", byte_hours=1_234 * GB, micro_per_gb_month=20_000, amount_micro=1
    )
    words = "files and models, 1,234.000000 GB-hours at 0.02 a GB-month"
    assert storage_words(charge) == words
