"""Calls that fail are errors which name the call."""

import pytest

from tunery.confinement import libc

pytestmark = pytest.mark.security


def test_a_call_that_the_kernel_does_not_have_is_an_error() -> None:
    with pytest.raises(OSError, match="no such thing: Function not implemented"):
        libc.syscall("no such thing", 100_000)
