"""Commands that follow from events of `account`."""

import pytest

from schemas.account import (
    Event,
    KeyRevoked,
    Limits,
    PeriodEnded,
    PlanSet,
    PlanTerms,
    TenantCreated,
)
from schemas.job import SetLimits
from schemas.sealed import Sealed
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
