"""A record proves who has sent it, to the owner of its stream alone."""

import hmac
import json

import msgspec
import pytest

from schemas.streams import key_number_of, node_of
from schemas.topics import ACCOUNT, DATASET, JOB, POOL, TELEMETRY
from tunery.platform.bus.sender_keys import keys_of
from tunery.runtime.bus.signing import (
    UNSIGNED,
    SenderKeys,
    Unproven,
    operator_keys,
    read_keys,
    write_keys,
)

pytestmark = pytest.mark.security

SECRET = b"s" * 32
OWNER = keys_of(SECRET, "billing")
RECORD = b'{"id":"1","tenant":"acme"}'


def as_sender(principal: str, record: bytes = RECORD, stream: str = ACCOUNT.name) -> bytes:
    return keys_of(SECRET, principal).sign(stream, record)


def test_the_owner_knows_who_has_sent_a_record() -> None:
    for sender in ("gateway", "billing", "node.gpu-07"):
        assert OWNER.sender_of(ACCOUNT.name, as_sender(sender), 0) == sender


def test_a_signed_record_is_the_same_object_with_two_more_fields() -> None:
    signed = json.loads(as_sender("gateway"))
    assert signed.pop("signature").isalnum()
    assert signed == {"id": "1", "tenant": "acme", "sender": "gateway"}


def test_security_c2_a_record_that_anybody_could_have_made_is_unproven() -> None:
    signed = as_sender("gateway")
    forged = (
        *(RECORD, b"", b"{}", signed[:-1], signed + b" ", signed[-60:]),
        signed.replace(b"acme", b"evil"),
        signed.replace(b'"gateway"', b'"billing"'),
        signed[:-4] + b'00"}',
        RECORD[:-1] + b',"sender":"gateway","signature":"' + b"0" * 64 + b'"}',
        operator_keys(b"t" * 32, "gateway").sign(ACCOUNT.name, RECORD),
    )
    for record in forged:
        with pytest.raises(Unproven):
            OWNER.sender_of(ACCOUNT.name, record, 0)


def test_security_c2_no_byte_of_a_signed_record_can_be_changed() -> None:
    signed = as_sender("node.gpu-07")
    for index in range(len(signed)):
        changed = signed[:index] + bytes([signed[index] ^ 1]) + signed[index + 1 :]
        with pytest.raises(Unproven):
            OWNER.sender_of(ACCOUNT.name, changed, 0)


def test_security_c2_a_record_of_one_stream_proves_nothing_on_another() -> None:
    keys = operator_keys(SECRET, "gateway")
    with pytest.raises(Unproven):
        keys.sender_of(DATASET.name, keys.sign(JOB.name, RECORD), 0)


def test_security_c2_a_second_key_of_a_node_is_another_one() -> None:
    first, second = keys_of(SECRET, "node.a"), keys_of(SECRET, "node.a#2")
    assert first.own.keys() == second.own.keys()
    assert not set(first.own.values()) & set(second.own.values())
    assert (node_of(second.sender), key_number_of(second.sender)) == ("a", 2)
    assert (node_of(first.sender), key_number_of(first.sender)) == ("a", 1)


def test_keys_of_nodes_that_an_earlier_version_printed_are_good() -> None:
    former = hmac.digest(OWNER.checked[ACCOUNT.name], b"node.a", "sha256")
    record = SenderKeys("node.a", {ACCOUNT.name: former}).sign(ACCOUNT.name, RECORD)
    assert OWNER.sender_of(ACCOUNT.name, record, 0) == "node.a"


def test_records_of_before_the_keys_are_taken_as_they_are() -> None:
    keys = keys_of(SECRET, "billing", signed_since=1_000)
    assert keys.sender_of(ACCOUNT.name, RECORD, 999) is None
    with pytest.raises(Unproven):
        keys.sender_of(ACCOUNT.name, RECORD, 1_000)


def test_keys_say_what_they_can_sign_and_check() -> None:
    node, gateway = keys_of(SECRET, "node.a"), keys_of(SECRET, "gateway")
    assert (node.can_sign(TELEMETRY.name), node.can_check(TELEMETRY.name)) == (True, False)
    assert (gateway.can_sign(TELEMETRY.name), gateway.can_check(TELEMETRY.name)) == (False, True)
    earlier = SenderKeys("node.a", {POOL.name: b"k"})
    assert not earlier.can_sign(TELEMETRY.name)
    assert operator_keys(SECRET, "x").can_sign(TELEMETRY.name)


def test_without_keys_nothing_is_signed_or_checked() -> None:
    assert UNSIGNED.sign(ACCOUNT.name, RECORD) == RECORD
    assert UNSIGNED.sender_of(ACCOUNT.name, RECORD, 0) is None


def test_keys_are_one_line_of_text() -> None:
    keys = keys_of(SECRET, "scheduler", 7)
    text = write_keys(keys)
    assert "\n" not in text
    assert read_keys(text) == keys
    assert read_keys(write_keys(operator_keys(SECRET))).secret == SECRET


@pytest.mark.parametrize("text", ["", "{}", "off", '{"sender":"gateway"}', '{"own":{},"else":1}'])
def test_a_text_without_keys_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"keys|JSON|truncated|field|malformed"):
        read_keys(text)


def test_keys_are_compared_by_their_values() -> None:
    assert SenderKeys("a", {"x": b"1"}) == msgspec.structs.replace(SenderKeys("a"), own={"x": b"1"})
