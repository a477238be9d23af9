"""What it refuses is shown in `test_enter.py`."""

from tunery.confinement import landlock


def test_this_kernel_has_landlock() -> None:
    assert landlock.version() >= 1
