"""Mechanisms of confinement on this machine."""

import pytest

from tunery.confinement import support

pytestmark = pytest.mark.security


def test_this_machine_has_landlock_and_seccomp() -> None:
    assert not support.missing_walls().keys() & {"landlock", "seccomp", "capabilities"}
    assert support.landlock_version() >= 1
