"""Commands that follow from events of `account`."""

import pytest
from msgspec.structs import replace

from schemas.account import (
    PRICES_PARTITION,
    Event,
    ImportPrices,
    KeyRevoked,
    Limits,
    PeriodEnded,
    PlanSet,
    PlanTerms,
    PricesImported,
    TenantCreated,
)
from schemas.admission import RecordAnswers
from schemas.answers import AnswerCost, AnswersCounted
from schemas.billing import PriceBook
from schemas.job import SetLimits
from schemas.sealed import Sealed
from schemas.streams import PARTITIONS
from schemas.units import hour_of
from services.billing.react import react_account
from tests.unit.services.headers import header

SEALED = Sealed(key_id="k", nonce=b"n", ciphertext=b"c")
LIMITS = Limits(soft_gpu_ms=10, hard_gpu_ms=20, concurrency=2)
HEADER = header("account")


@pytest.mark.parametrize(
    "event",
    [
        TenantCreated(
            name=SEALED, terms=PlanTerms(lane="free", limits=LIMITS, price_version="2026-11")
        ),
        PlanSet(terms=PlanTerms(lane="free", limits=LIMITS, price_version="2026-11")),
    ],
)
def test_the_limits_in_force_reach_the_decider_of_jobs(event: Event) -> None:
    (send,) = react_account(HEADER, event)
    assert (send.stream, send.key, send.tenant) == ("job", "acme", "acme")
    assert send.body == SetLimits(
        terms=PlanTerms(lane="free", limits=LIMITS, price_version="2026-11")
    )


@pytest.mark.parametrize(
    "event",
    [
        KeyRevoked(key_id="key-1", sha256="ab" * 32),
        PeriodEnded(period="2026-11", soft_gpu_ms=10, before=None),
    ],
)
def test_what_leaves_the_limits_alone_sends_nothing(event: Event) -> None:
    assert react_account(HEADER, event) == ()


def test_what_answers_cost_reaches_the_budgets_once_it_has_a_price() -> None:
    cost = AnswerCost(key_id="key_1", currency="EUR", micro=3, millionths=1)
    (send,) = react_account(HEADER, AnswersCounted(uses=(), costs=(cost,)))
    assert (send.stream, send.key, send.tenant) == ("job", "acme", "acme")
    assert send.body == RecordAnswers(hour_utc=hour_of(HEADER.at), costs=(cost,))
    assert react_account(HEADER, AnswersCounted(uses=())) == ()


def test_money_b3_one_partition_judges_a_book_and_the_others_get_what_it_imported() -> None:
    book = PriceBook(
        version="2026-12",
        currency="EUR",
        gpu_hour_micro={"standard": 1},
        token_micro_per_million=0,
        effective_from="2026-12-01",
    )
    imported = PricesImported(book=book, sha256="ab" * 32)
    sends = react_account(HEADER, imported)
    assert {send.partition for send in sends} == set(range(PARTITIONS)) - {PRICES_PARTITION}
    command = ImportPrices(book=book, sha256="ab" * 32)
    assert all(send.body == command for send in sends)
    assert {(send.stream, send.key) for send in sends} == {("account", "*")}
    elsewhere = replace(HEADER, partition=PRICES_PARTITION + 1)
    assert react_account(elsewhere, imported) == ()
