"""An operator's order about a command: it is believed when it is signed, and about no other one."""

from schemas.envelope import Claim
from schemas.topics import POOL
from tunery.platform.bus.sender_keys import keys_of
from tunery.runtime.bus.abstract import Record
from tunery.runtime.bus.signing import UNSIGNED, SenderKeys, operator_keys
from tunery.runtime.journal.codec import encode
from tunery.runtime.journal.refusals import (
    OPERATOR,
    WHY_CHARS_MAX,
    read_refusal,
    refusal_of,
    refuses,
    refusing_claim,
)

SECRET = b"s" * 32
COMMAND = Record(3, 41, 7, b"default", b'{"id":"..."}')
ORDER = refusal_of(COMMAND, 1_041, "ada@ops:1", "names a node that never was")
OWNER = keys_of(SECRET, POOL.owner)


def claim_by(keys: SenderKeys) -> Record:
    claim = refusing_claim(POOL, ORDER, "ada@ops:1", "n", keys)
    return Record(3, 9, 7, b"", encode(claim))


def test_review2_e7_an_order_is_about_one_command() -> None:
    assert refuses(ORDER, COMMAND, 1_041)
    assert not refuses(ORDER, COMMAND, 1_042)
    assert not refuses(ORDER, COMMAND._replace(value=b"another"), 1_041)
    assert (
        len(str(refusal_of(COMMAND, 1, "ada", "x" * 10_000).reason.params["why"])) == WHY_CHARS_MAX
    )


def test_review2_e7_only_an_operator_is_believed() -> None:
    signed = read_refusal(POOL, claim_by(operator_keys(SECRET, OPERATOR)), OWNER)
    assert signed is not None
    assert (signed.reason, signed.sender) == (ORDER.reason, OPERATOR)
    assert refuses(signed, COMMAND, 1_041)
    for keys in (UNSIGNED, operator_keys(b"t" * 32, OPERATOR), operator_keys(SECRET, "gateway")):
        assert read_refusal(POOL, claim_by(keys), OWNER) is None
    assert read_refusal(POOL, claim_by(UNSIGNED), UNSIGNED) == ORDER, "nothing is signed there"


def test_a_claim_without_an_order_is_as_it_was() -> None:
    plain = encode(Claim(owner="a", nonce="n"))
    assert b"refusal" not in plain
    assert read_refusal(POOL, Record(3, 9, 7, b"", plain), OWNER) is None
    assert read_refusal(POOL, Record(3, 9, 7, b"", b"not json"), OWNER) is None
