"""A box opens with the private key of its reader alone."""

import pytest

from tunery.platform.seal.abstract import SealBroken
from tunery.platform.seal.boxes import open_box, public_key_of, seal_to

PRIVATE, OTHER, SEED = b"p" * 32, b"o" * 32, b"s" * 32
PUBLIC = public_key_of(PRIVATE)


def test_the_reader_opens_it() -> None:
    for text in (b"", b"keys", b"x" * 10_000):
        box = seal_to(PUBLIC, text, SEED)
        assert open_box(PRIVATE, box) == text
        assert b"keys" not in box


def test_security_c2_other_keys_do_not_open_it_and_no_byte_can_be_changed() -> None:
    box = seal_to(PUBLIC, b"keys", SEED)
    with pytest.raises(SealBroken):
        open_box(OTHER, box)
    for index in range(len(box)):
        changed = box[:index] + bytes([box[index] ^ 1]) + box[index + 1 :]
        with pytest.raises(SealBroken):
            open_box(PRIVATE, changed)
    for short in (b"", box[:31], box[:32], box[:-1]):
        with pytest.raises(SealBroken):
            open_box(PRIVATE, short)


@pytest.mark.parametrize("key", [b"", b"x" * 31, bytes(32)])
def test_what_is_no_public_key_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match=r"key|32|bytes"):
        seal_to(key, b"keys", SEED)
