"""What ranks are given to meet each other."""

import os

import pytest

from tunery.ranks.joining import joined


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
