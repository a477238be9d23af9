"""Charges of sessions: tokens of each kind, which cost nothing."""

import pytest
from msgspec.structs import replace

from schemas.envelope import Header
from schemas.session import CommandAnswered
from schemas.training import BlobFile
from schemas.units import HOUR_MS
from services.exporter.domain.focus import COLUMNS, KIND_COLUMNS, ExportedCharge
from services.exporter.domain.sessions import charges_of_session
from tests.unit.services.exporter.domain.test_focus import ACCOUNTS
from tests.unit.services.exporter.journals import HOUR
from tunery.billing.lines import PriceMissing

FILE = BlobFile(name="answer", blob="t/acme/sessions/1", sha256="ab" * 32, bytes=1)
HEADER = Header(
    stream="session",
    partition=3,
    offset=8,
    at=HOUR * HOUR_MS + 1,
    key="session-1",
    tenant="acme",
    seq=1,
    command_id="c",
    incarnation=0,
)


def answered(trained: int = 0, prefilled: int = 0, sampled: int = 0) -> CommandAnswered:
    return CommandAnswered(
        name="1",
        answer=FILE,
        trained=trained,
        prefilled=prefilled,
        sampled=sampled,
        price_version="2026-11",
    )


def charge_of(event: CommandAnswered) -> ExportedCharge:
    (only,) = charges_of_session(HEADER, event, ACCOUNTS, "Tunery")
    return only


def test_an_answered_command_is_a_charge_of_nothing_with_its_tokens_and_its_place() -> None:
    charge = charge_of(answered(prefilled=5, sampled=7))
    columns = charge.columns
    assert list(columns) == list(COLUMNS)
    assert (charge.tenant, charge.month, columns["InvoiceId"]) == ("acme", "2026-11", "2026-11-EUR")
    assert columns["BilledCost"] == columns["ListCost"] == columns["ListUnitPrice"] == 0
    assert [columns[name] for name in KIND_COLUMNS.values()] == [0, 5, 7]
    assert columns["ConsumedQuantity"] == columns["PricingQuantity"] == 12
    assert (columns["ResourceId"], columns["ChargeCategory"]) == ("session-1", "Usage")
    assert (columns["x_GpuMilliseconds"], columns["x_Tokens"]) == (None, None)
    assert (columns["x_JournalPartition"], columns["x_JournalOffset"]) == (3, 8)
    assert columns["x_Topic"] == "tunery.session.journal.v1"


def test_a_command_without_tokens_or_without_a_book_is_no_charge() -> None:
    without_book = replace(answered(trained=5), price_version="")
    for event in (answered(), without_book):
        assert list(charges_of_session(HEADER, event, ACCOUNTS, "Tunery")) == []
    with pytest.raises(PriceMissing, match="2020-01"):
        charge_of(replace(answered(trained=5), price_version="2020-01"))
