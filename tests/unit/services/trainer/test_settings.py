"""A node starts with its own command keys or with none."""

import pytest

from services.trainer.settings import check_keys
from tunery.platform.settings import SettingsError


@pytest.mark.parametrize("sender", ["", "node.a"])
def test_own_keys_and_none_are_accepted(sender: str) -> None:
    check_keys("a", sender)


@pytest.mark.security
def test_keys_of_another_node_are_refused_with_the_command_that_prints_its_own() -> None:
    with pytest.raises(
        SettingsError, match=r"is of node\.b, .* node a: `tunery kafka keys node\.a`"
    ):
        check_keys("a", "node.b")
