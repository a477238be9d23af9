"""Books of accounts find what contradicts them."""

from typing import Any

import pytest

from schemas.account import CreateKey, KeyCreated, KeyRevoked, RevokeKey
from schemas.billing import PrepaidCredit
from schemas.erasure import EraseTenant, ErasurePartDone, RecordErasedPart, TenantErasureBegun
from schemas.keys import KeyTerms
from schemas.prepaid import GrantPrepaid, PrepaidGranted, PrepaidRevoked, RevokePrepaid
from schemas.sealed import Sealed
from simulator.control_plane.account_books import AccountBooks
from simulator.control_plane.samples import T0

TEXT = Sealed(key_id="", nonce=b"", ciphertext=b"")
KEY = KeyTerms(key_id="k", name=TEXT, sha256="1" * 64, hint="…", scopes=("write",))
OTHER = KeyTerms(key_id="o", name=TEXT, sha256="2" * 64, hint="…", scopes=("write",))
CREDIT = PrepaidCredit(reference="p", amount_micro=10_000, currency="EUR")
GRANT = (GrantPrepaid(credit=CREDIT), PrepaidGranted(credit=CREDIT, first_month="2025-11"))
BEGIN = (EraseTenant(), TenantErasureBegun(begins=("jobs",)))


def books_of(*decisions: tuple[Any, ...]) -> list[str]:
    books = AccountBooks()
    for command, *events in decisions:
        books.enter("acme", command, tuple(events), T0)
    return [violation.partition(":")[0] for violation in books.violations]


CREATED = ((CreateKey(terms=KEY), KeyCreated(terms=KEY)),)
BOTH = (*CREATED, (CreateKey(terms=OTHER), KeyCreated(terms=OTHER)))


def test_what_agrees_with_the_books_is_no_violation() -> None:
    revoke = RevokeKey(key_id="k", secret=KEY.sha256)
    revoked = PrepaidRevoked(reference="p", amount_micro=10_000)
    assert books_of(*CREATED, (revoke, KeyRevoked(key_id="k", sha256=KEY.sha256)), BEGIN) == []
    assert books_of(GRANT, (RevokePrepaid(reference="p"), revoked)) == []


@pytest.mark.parametrize(
    ("invariant", "decisions"),
    [
        ("api key", (*CREATED, *CREATED)),
        (
            "api key",
            (
                *BOTH,
                (
                    RevokeKey(key_id="k", secret=OTHER.sha256),
                    KeyRevoked(key_id="k", sha256=KEY.sha256),
                ),
            ),
        ),
        ("prepaid", (GRANT, GRANT)),
        (
            "prepaid",
            (
                GRANT,
                (RevokePrepaid(reference="p"), PrepaidRevoked(reference="p", amount_micro=9_999)),
            ),
        ),
        ("erasure", (BEGIN, BEGIN)),
        ("erasure", (BEGIN, (RecordErasedPart(part="key"), ErasurePartDone(part="key")))),
    ],
)
def test_review2_w1_what_contradicts_the_books_is_found(
    invariant: str, decisions: tuple[Any, ...]
) -> None:
    assert invariant in books_of(*decisions)
