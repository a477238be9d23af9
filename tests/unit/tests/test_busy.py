import sys

from tests.busy import main


def test_exit_status_is_that_of_the_command() -> None:
    assert main([sys.executable, "-c", "raise SystemExit(7)"]) == 7
