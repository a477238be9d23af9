"""The scheduler, and no other service, seals the keys of a node to its public key."""

from base64 import b64decode
from typing import Final

import pytest
from msgspec.structs import replace

from schemas.enrolment import NodeEnrolled, RecordNodeKeys
from schemas.node import NodeKeysWithdrawn
from schemas.topics import SERVICES
from services.scheduler.enrolling import reacting_with
from services.scheduler.react import react_pool
from tests.unit.services.scheduler.test_react import HEADER
from tunery.platform.bus.sender_keys import keys_of
from tunery.platform.seal.boxes import open_box, public_key_of
from tunery.runtime.bus.signing import UNSIGNED, SenderKeys, read_keys
from tunery.runtime.verbs import Send

pytestmark = pytest.mark.security

SECRET, PRIVATE = b"s" * 32, b"p" * 32
KEYS: Final = keys_of(SECRET, "scheduler")
IN_POOL: Final = replace(HEADER, stream="pool", key="default")
EVENT: Final = NodeEnrolled(node_id="n", public_key=public_key_of(PRIVATE).hex(), key_number=1)


def sealed(keys: SenderKeys, event: NodeEnrolled) -> tuple[Send, ...]:
    return reacting_with(keys)(IN_POOL, event)


def opened(event: NodeEnrolled) -> SenderKeys:
    (send,) = sealed(KEYS, event)
    assert isinstance(send.body, RecordNodeKeys)
    assert (send.stream, send.key) == ("pool", "default")
    assert (send.body.node_id, send.body.public_key) == ("n", event.public_key)
    return read_keys(open_box(PRIVATE, b64decode(send.body.sealed_keys)).decode())


def test_a_node_gets_what_an_operator_would_have_printed() -> None:
    assert opened(EVENT) == keys_of(SECRET, "node.n")
    assert opened(replace(EVENT, key_number=2)) == keys_of(SECRET, "node.n#2")


def test_a_repeated_reaction_is_the_same() -> None:
    assert sealed(KEYS, EVENT) == sealed(keys_of(SECRET, "scheduler"), EVENT)
    assert sealed(KEYS, EVENT) != sealed(KEYS, replace(EVENT, key_number=2))


def test_a_public_key_without_a_private_one_stops_nothing() -> None:
    assert sealed(KEYS, replace(EVENT, public_key="00" * 32)) == ()


@pytest.mark.parametrize("name", sorted({*SERVICES} - {"scheduler", "trainer"}))
def test_no_other_service_can_make_keys_of_nodes(name: str) -> None:
    assert sealed(keys_of(SECRET, name), EVENT) == ()


def test_without_keys_there_is_nothing_to_give() -> None:
    assert sealed(UNSIGNED, EVENT) == ()


def test_other_reactions_are_as_they_were() -> None:
    event = NodeKeysWithdrawn(node_id="n", number=1)
    assert reacting_with(KEYS)(IN_POOL, event) == react_pool(IN_POOL, event) != ()
