"""What ranks are given to meet each other."""

import os

import pytest

from tunery.ranks.joining import WORD_BYTES, Word, decoded_word, joined


def test_ranks_are_joined_by_what_is_open_already() -> None:
    """Each has the memory, and a connection of its own to each other one."""
    with joined(3, part_bytes=64) as (first, second, third):
        assert first[0] == second[0] == third[0]
        assert os.fstat(first[0]).st_size == 2 * 3 * 64
        for end, peer in ((first[1], second[1]), (first[2], third[1]), (second[2], third[2])):
            os.write(end, b"a")
            assert os.read(peer, 2) == b"a"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(first[0])


def test_a_word_is_read_as_it_was_told() -> None:
    word = Word(written=8 << 20, begin=3, end=70_000)
    assert len(word.encoded()) == WORD_BYTES
    assert decoded_word(word.encoded()) == word
    assert decoded_word(b"") is decoded_word(word.encoded()[:-1]) is None
