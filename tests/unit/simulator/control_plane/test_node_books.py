"""Books of nodes find leases, tokens and keys that should not be."""

from typing import Any

import pytest

from schemas.enrolment import (
    EnrolNode,
    InvitationRevoked,
    InviteNode,
    NodeEnrolled,
    NodeInvited,
    RevokeInvitation,
)
from schemas.node import (
    CordonNode,
    DeviceFault,
    DeviceFaultsChanged,
    JoinNode,
    NodeCordoned,
    NodeJoined,
    NodeKeysWithdrawn,
    NodeUncordoned,
    WithdrawNodeKeys,
)
from schemas.pool import LeaseGranted, LeaseMember, LeaseRef, Token
from schemas.reasons import cordoning, device_fault
from simulator.control_plane.node_books import NodeBooks
from simulator.control_plane.samples import T0

HASH, KEY = "1" * 64, "2" * 64
ORDER = CordonNode(node_id="a")
CORDONED = (None, ORDER, NodeCordoned(node_id="a", reason=cordoning("jobs_failed", jobs=3)))
FAULT = DeviceFault(device=0, reason=device_fault("ecc"))
FAULTY = (None, ORDER, DeviceFaultsChanged(node_id="a", faults=(FAULT,)))
GRANTED = (
    None,
    ORDER,
    LeaseGranted(
        lease=LeaseRef(
            token=Token(pool="default", lease=1),
            tenant="acme",
            job_id="ftjob-1",
            attempt=1,
            role="train",
            lane="standard",
            price_version="2026-11",
        ),
        members=(LeaseMember(node_id="a", incarnation="a-1", slots=1, devices=(0,)),),
    ),
)
INVITED = (
    None,
    InviteNode(node_id="a", token_sha256=HASH, valid_ms=1),
    NodeInvited(node_id="a", token_sha256=HASH, expires_at=T0 + 1),
)
WITHDRAWN = (None, WithdrawNodeKeys(node_id="a"), NodeKeysWithdrawn(node_id="a", number=1))
JOINED = ("node.a", JoinNode(node_id="a", incarnation="a-1"), NodeJoined(node_id="a"))


def enrolled(token: str = HASH, number: int = 1) -> tuple[Any, ...]:
    command = EnrolNode(node_id="a", token_sha256=token, public_key=KEY)
    return (None, command, NodeEnrolled(node_id="a", public_key=KEY, key_number=number))


SEVERAL = (
    None,
    InviteNode(node_id="s", token_sha256=HASH, valid_ms=1, uses=1),
    NodeInvited(node_id="s", token_sha256=HASH, expires_at=T0 + 1, nodes_max=1),
)
REVOKED = (None, RevokeInvitation(node_id="s"), InvitationRevoked(node_id="s"))


def joined(node_id: str, token: str = HASH) -> tuple[Any, ...]:
    command = EnrolNode(node_id=node_id, token_sha256=token, public_key=KEY, invitation="s")
    own = NodeInvited(node_id=node_id, token_sha256=token, expires_at=T0 + 1, invitation="s")
    return (None, command, own, NodeEnrolled(node_id=node_id, public_key=KEY, key_number=1))


def violated(*decisions: tuple[Any, ...]) -> list[str]:
    books = NodeBooks()
    for sender, command, *events in decisions:
        books.enter(sender, command, tuple(events), T0)
    return [violation.partition(":")[0] for violation in books.violations]


def test_what_agrees_with_the_books_is_no_violation() -> None:
    uncordoned = (None, ORDER, NodeUncordoned(node_id="a"))
    assert violated(CORDONED, uncordoned, GRANTED) == []
    assert violated(JOINED, WITHDRAWN, INVITED, enrolled(number=2)) == []
    assert violated(SEVERAL, joined("s-1"), REVOKED) == []


@pytest.mark.parametrize(
    ("invariant", "decisions"),
    [
        ("cordon", (CORDONED, GRANTED)),
        ("device", (FAULTY, GRANTED)),
        ("enrolment", (INVITED, enrolled("3" * 64))),
        ("enrolment", (INVITED, enrolled(), enrolled())),
        ("enrolment", (WITHDRAWN, INVITED, enrolled(number=1))),
        ("enrolment", (SEVERAL, joined("s-1"), joined("s-2"))),
        ("enrolment", (SEVERAL, joined("s-1", "3" * 64))),
        ("enrolment", (SEVERAL, REVOKED, joined("s-1"))),
        ("withdrawn", (WITHDRAWN, JOINED)),
    ],
)
def test_review2_w1_what_contradicts_the_books_is_found(
    invariant: str, decisions: tuple[Any, ...]
) -> None:
    assert violated(*decisions) == [invariant]
