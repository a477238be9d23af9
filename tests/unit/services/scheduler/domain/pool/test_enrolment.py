"""A token is accepted once, before its end, for the node that it was made for."""

import hashlib
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas import errors
from schemas.enrolment import (
    INVITATION_MS_MAX,
    USES_MAX,
    EnrolNode,
    InvitationRevoked,
    InviteNode,
    NodeEnrolled,
    NodeInvited,
    NodeKeysSealed,
    RecordNodeKeys,
    RevokeInvitation,
)
from schemas.envelope import Message, Rejected
from schemas.node import NodeKeysWithdrawn, WithdrawNodeKeys
from schemas.topics import SERVICES
from schemas.units import HOUR_MS
from services.scheduler.domain.pool.enrolment import INVITATIONS_MAX
from simulator.control_plane.samples import node
from tests.unit.services.scheduler.domain.pool.test_decide import pool
from tests.unit.services.scheduler.fold import Decider

pytestmark = pytest.mark.security

KEY, OTHER_KEY = "a" * 64, "b" * 64
TOKEN, SHARED = "t", "of spot"


def sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def invite(node_id: str = "n", token: str = TOKEN, valid_ms: int = HOUR_MS) -> InviteNode:
    return InviteNode(node_id=node_id, token_sha256=sha256(token), valid_ms=valid_ms)


def enrol(node_id: str = "n", token: str = TOKEN, key: str = KEY) -> EnrolNode:
    return EnrolNode(node_id=node_id, token_sha256=sha256(token), public_key=key)


def refusal(events: tuple[Any, ...]) -> tuple[str, str]:
    (refused,) = events
    assert isinstance(refused, Rejected)
    return refused.code, refused.reason.code


def invited(*commands: Message) -> Decider:
    return pool().accept(invite(), *commands)


def test_a_token_gives_the_first_keys_of_the_node_that_it_was_made_for() -> None:
    decider = pool()
    (event,) = decider.when(invite())
    assert event == NodeInvited(
        node_id="n", token_sha256=sha256("t"), expires_at=decider.at + HOUR_MS
    )
    assert decider.when(enrol()) == (NodeEnrolled(node_id="n", public_key=KEY, key_number=1),)


def test_after_a_lost_answer_the_same_public_key_changes_nothing_and_another_is_refused() -> None:
    decider = invited(enrol())
    assert decider.when(enrol()) == ()
    used = (errors.INVITATION_REFUSED, "invitation_used")
    assert refusal(decider.when(enrol(key=OTHER_KEY))) == used
    decider.at += HOUR_MS
    expired = (errors.INVITATION_REFUSED, "invitation_expired")
    assert refusal(decider.when(enrol())) == expired


@pytest.mark.parametrize(
    "shown", [enrol(token="other"), enrol("m"), enrol(token=""), enrol("m", "other")]
)
def test_a_token_without_a_node_or_of_another_one_is_unknown(shown: EnrolNode) -> None:
    decider = invited(invite("m", "of m"))
    unknown = (errors.INVITATION_REFUSED, "invitation_unknown")
    assert refusal(decider.when(shown)) == unknown


def test_a_token_works_until_its_end() -> None:
    decider = invited()
    decider.at += HOUR_MS - 1
    assert isinstance(decider.when(enrol())[0], NodeEnrolled)
    decider = invited()
    decider.at += HOUR_MS
    assert refusal(decider.when(enrol()))[1] == "invitation_expired"


def test_a_second_invitation_replaces_the_first() -> None:
    decider = invited(invite(token="second"))
    assert refusal(decider.when(enrol()))[1] == "invitation_unknown"
    assert isinstance(decider.when(enrol(token="second"))[0], NodeEnrolled)


def test_after_a_withdrawal_a_token_gives_the_next_keys() -> None:
    decider = pool().accept(node("n", "n-1"), invite(), WithdrawNodeKeys(node_id="n"))
    assert decider.when(enrol()) == (NodeEnrolled(node_id="n", public_key=KEY, key_number=2),)


def test_keys_that_somebody_has_who_has_not_registered_are_withdrawn_as_well() -> None:
    withdraw = WithdrawNodeKeys(node_id="n")
    first = NodeKeysWithdrawn(node_id="n", number=1)
    decider = invited(enrol(), invite(token="later"))
    decider.at += 2 * HOUR_MS
    decider.accept(invite("m"))
    assert decider.when(withdraw) == (first,)
    decider.accept(invite())
    assert decider.when(withdraw) == (), "no node has the second keys yet"
    assert decider.when(enrol())[0].key_number == 2
    assert decider.when(withdraw) == (NodeKeysWithdrawn(node_id="n", number=2),)
    assert refusal(pool().when(withdraw)) == (errors.NOT_FOUND, "node_missing")
    unused = invited().when(withdraw)
    assert refusal(unused) == (errors.NOT_FOUND, "node_missing")


def test_sealed_keys_are_recorded_for_the_key_that_used_the_token_alone() -> None:
    sealed = RecordNodeKeys(node_id="n", public_key=KEY, sealed_keys="AAAA")
    assert pool().when(sealed) == ()
    assert invited().when(sealed) == ()
    decider = invited(enrol())
    assert decider.when(sealed) == (
        NodeKeysSealed(node_id="n", public_key=KEY, sealed_keys="AAAA"),
    )
    assert decider.accept(invite(token="later")).when(sealed) == ()


@pytest.mark.parametrize("name", [*SERVICES, "operator", "kafka", "Gateway"])
def test_review2_p24_no_node_is_called_like_another_principal(name: str) -> None:
    assert refusal(pool().when(invite(name))) == (errors.MALFORMED, "node_id_reserved")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (invite(""), "node_id_malformed"),
        (invite("n#2"), "node_id_malformed"),
        (invite("n" * 129), "node_id_malformed"),
        (invite(valid_ms=0), "invitation_out_of_range"),
        (invite(valid_ms=INVITATION_MS_MAX + 1), "invitation_out_of_range"),
        (enrol(key="A" * 64), "public_key_malformed"),
        (enrol(key="a" * 63), "public_key_malformed"),
    ],
)
def test_what_is_malformed_is_refused(command: Message, code: str) -> None:
    assert refusal(invited().when(command)) == (errors.MALFORMED, code)


def test_invitations_have_a_limit_and_leave_when_they_have_ended() -> None:
    decider = pool().accept(*(invite(f"n{number}") for number in range(INVITATIONS_MAX)))
    assert refusal(decider.when(invite("more"))) == (errors.QUOTA_EXCEEDED, "invitations_at_most")
    decider.accept(invite("n0", "again"))
    decider.at += HOUR_MS
    decider.accept(invite("more"))
    assert len(decider.state[decider.key].invitations) == 1


def test_used_invitations_leave_once_the_node_has_registered_with_their_keys() -> None:
    decider = invited(enrol(), invite("lurking", "l"), enrol("lurking", "l", OTHER_KEY))
    decider.accept(node("n", "n-1"))
    decider.at += HOUR_MS
    decider.accept(invite("more"))
    assert set(decider.state[decider.key].invitations) == {"lurking", "more"}
    withdrawn = WithdrawNodeKeys(node_id="n")
    assert decider.when(withdrawn)[0] == NodeKeysWithdrawn(node_id="n", number=1)
    assert decider.refolded() == decider.state


def test_sealed_settings_are_passed_on() -> None:
    (event,) = pool().when(replace(invite(), sealed_settings="c2VhbGVk"))
    assert event.sealed_settings == "c2VhbGVk"


STEPS: Final = st.lists(
    st.one_of(
        st.builds(invite, st.sampled_from("nm"), st.sampled_from("tu")),
        st.builds(
            enrol, st.sampled_from("nm"), st.sampled_from("tu"), st.sampled_from((KEY, OTHER_KEY))
        ),
        st.integers(0, HOUR_MS),
    ),
    max_size=12,
)


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_each_invitation_is_used_at_most_once(steps: list[Message | int]) -> None:
    decider, unused = pool(), dict[str, tuple[str, int]]()
    for step in steps:
        if isinstance(step, int):
            decider.at += step
            continue
        for event in decider.when(step):
            if isinstance(event, NodeInvited):
                unused[event.node_id] = (event.token_sha256, event.expires_at)
            if isinstance(event, NodeEnrolled):
                assert isinstance(step, EnrolNode)
                token_sha256, expires_at = unused.pop(event.node_id)
                assert token_sha256 == step.token_sha256
                assert decider.at < expires_at
    assert decider.refolded() == decider.state


# --- a token for several nodes -----------------------------------------------------------------


def several(uses: int = 2) -> Decider:
    """Nodes `spot-…` are invited; `n` is, too."""
    return invited(replace(invite("spot", SHARED), uses=uses))


def join(node_id: str, key: str = KEY, token: str = SHARED) -> EnrolNode:
    return replace(enrol(node_id, token, key), invitation="spot")


def test_a_token_for_several_lets_as_many_join_and_each_use_is_an_event() -> None:
    decider = several(2)
    for number, key in enumerate((KEY, OTHER_KEY)):
        node_id = f"spot-{number}"
        joined, enrolled = decider.when(join(node_id, key))
        assert joined == NodeInvited(
            node_id=node_id,
            token_sha256=sha256("of spot"),
            expires_at=decider.at + HOUR_MS,
            invitation="spot",
        )
        assert enrolled == NodeEnrolled(node_id=node_id, public_key=key, key_number=1)
        assert decider.when(join(node_id, key)) == (), "its answer was lost"
    used_up = (errors.INVITATION_REFUSED, "invitation_used_up")
    assert refusal(decider.when(join("spot-2", "c" * 64))) == used_up
    assert decider.when(join("spot-0")) == (), "those that have joined may ask again"
    sealed = RecordNodeKeys(node_id="spot-1", public_key=OTHER_KEY, sealed_keys="AAAA")
    assert isinstance(decider.when(sealed)[0], NodeKeysSealed)


@pytest.mark.parametrize(
    ("shown", "code"),
    [
        (join("spot-0", token="other"), "invitation_unknown"),
        (join("spot"), "invitation_unknown"),
        (join("spot-"), "invitation_unknown"),
        (join("spotty-0"), "invitation_unknown"),
        (join("gpu-0"), "invitation_unknown"),
        (join("n"), "invitation_unknown"),
        (join("spot-0", token=TOKEN), "invitation_unknown"),
        (replace(join("n-0", token=TOKEN), invitation="n"), "invitation_unknown"),
        (replace(join("spot-0"), invitation=None), "invitation_unknown"),
        (replace(join("spot-0"), invitation="absent"), "invitation_unknown"),
        (join("spot-taken"), "node_id_taken"),
        (join("spot-alone"), "invitation_unknown"),
        (join("spot-a:b"), "node_id_malformed"),
        (join("spot-0", key="x"), "public_key_malformed"),
    ],
)
def test_security_a_token_for_several_nodes_gives_no_other_nodes_keys(
    shown: EnrolNode, code: str
) -> None:
    decider = several().accept(node("spot-taken", "i-1"), invite("spot-alone", "of its own"))
    assert refusal(decider.when(shown))[1] == code
    assert isinstance(decider.when(join("spot-0"))[0], NodeInvited), "no use is lost by it"


def test_security_a_node_that_joined_is_not_taken_over_with_the_same_token() -> None:
    decider = several().accept(join("spot-0"))
    used = (errors.INVITATION_REFUSED, "invitation_used")
    assert refusal(decider.when(join("spot-0", OTHER_KEY))) == used
    decider.accept(WithdrawNodeKeys(node_id="spot-0"))
    assert refusal(decider.when(join("spot-0", OTHER_KEY))) == used, "nor when its keys are bad"


def test_a_token_that_is_revoked_gives_no_keys_and_takes_none_away() -> None:
    decider = several().accept(join("spot-0"))
    assert decider.when(RevokeInvitation(node_id="spot")) == (InvitationRevoked(node_id="spot"),)
    assert decider.when(RevokeInvitation(node_id="spot")) == ()
    expired = (errors.INVITATION_REFUSED, "invitation_expired")
    assert refusal(decider.when(join("spot-1"))) == expired
    assert decider.when(join("spot-0")) == (), "it may ask for its own keys again"
    decider.accept(RevokeInvitation(node_id="n"))
    assert refusal(decider.when(enrol())) == expired
    absent = decider.when(RevokeInvitation(node_id="x"))
    assert refusal(absent) == (errors.NOT_FOUND, "invitation_missing")
    again = decider.accept(replace(invite("spot", "newer"), uses=1))
    assert isinstance(again.when(join("spot-2", token="newer"))[0], NodeInvited)


def test_a_token_for_several_works_until_its_end() -> None:
    decider = several()
    decider.at += HOUR_MS
    assert refusal(decider.when(join("spot-0")))[1] == "invitation_expired"


@pytest.mark.parametrize("uses", [0, -1, USES_MAX + 1])
def test_a_token_has_a_limited_number_of_uses(uses: int) -> None:
    asked = replace(invite("spot"), uses=uses)
    assert refusal(pool().when(asked)) == (errors.MALFORMED, "invitation_uses_out_of_range")
