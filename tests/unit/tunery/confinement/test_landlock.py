"""Landlock's own calls; its refusals are tested in `test_enter.py`."""

import pytest

from tunery.confinement import landlock

pytestmark = pytest.mark.security


def test_this_kernel_has_landlock() -> None:
    assert landlock.version() >= 1
