"""A lease opens and seals with the keys that it was given, and no others."""

import msgspec
import pytest

from schemas.sealed import Sealed
from tunery.platform.blobs.path_keys import LeasePathKeys
from tunery.platform.seal.abstract import KeyStoreBroken
from tunery.platform.seal.handed import (
    HandedKeys,
    HandedPath,
    HandedText,
    LeaseSealer,
    decode_keys,
    encode_keys,
    hand_paths,
)
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.sealer import Sealer

SEALED = Sealed(key_id="acme.1a2b3c4d", nonce=b"n" * 12, ciphertext=b"c")


def test_keys_are_read_as_they_were_written() -> None:
    keys = HandedKeys(
        texts=(HandedText("acme.1", b"n", "grade"),),
        paths=(HandedPath("t/acme/x/", b"v", b"s", writes=True),),
        seal_id="acme.1/job/1",
        seal_secret=b"secret",
    )
    assert decode_keys(encode_keys(keys)) == keys
    with pytest.raises(msgspec.DecodeError):
        decode_keys(b"\xc1")


def test_a_lease_seals_nothing_before_it_has_a_key_and_nothing_for_others() -> None:
    services, lease = Sealer(MemoryKeyStore()), LeaseSealer("acme")
    with pytest.raises(KeyStoreBroken, match="no key to seal"):
        lease.seal("acme", "text", "detail")
    key = services.scoped_key("acme", "job/1")
    lease.take(HandedKeys(seal_id=key.key_id, seal_secret=key.secret))
    assert services.open(lease.seal("acme", "text", "detail"), "detail") == "text"
    with pytest.raises(KeyStoreBroken, match="tenant other"):
        lease.seal("other", "text", "detail")


def test_a_lease_reads_the_texts_that_it_was_given() -> None:
    lease = LeaseSealer("acme")
    lease.take(HandedKeys(texts=(HandedText(SEALED.key_id, SEALED.nonce, "grade"),)))
    assert lease.open(SEALED, "grader") == "grade"
    other = Sealed(key_id=SEALED.key_id, nonce=b"m" * 12, ciphertext=b"c")
    with pytest.raises(KeyStoreBroken, match="prompts"):
        lease.open(other, "prompts")
    with pytest.raises(RuntimeError, match="trainer has no keys"):
        lease.hmac("acme", "data")


def test_paths_are_for_reading_unless_they_say_more() -> None:
    paths = LeasePathKeys()
    version = b"tunery-2" + b"1a2b3c4d"
    handed = (HandedPath("t/a/x", version, b"1"), HandedPath("t/a/y/", version, b"2" * 32, True))
    hand_paths(HandedKeys(paths=handed), paths)
    assert paths.find("a", "t/a/x", version).secret == b"1"
    assert paths.current("a", "t/a/y/z") == paths.find("a", "t/a/y/z", version)
    with pytest.raises(KeyStoreBroken):
        paths.current("a", "t/a/x")
