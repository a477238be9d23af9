"""What it refuses is shown in `test_enter.py`."""

import pytest

from tunery.confinement import landlock

pytestmark = pytest.mark.security


def test_this_kernel_has_landlock() -> None:
    assert landlock.version() >= 1
