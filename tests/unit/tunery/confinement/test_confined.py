"""Arguments that start confined processes."""

import pytest

from tunery.confinement.confined import Confinement
from tunery.confinement.policy import ConfinementPolicy

pytestmark = pytest.mark.security


def test_off_changes_nothing_and_otherwise_the_program_comes_last() -> None:
    assert Confinement("off").command(("a", "b"), ConfinementPolicy()) == ("a", "b")
    assert Confinement().command(("a", "b"), ConfinementPolicy())[-2:] == ("a", "b")
