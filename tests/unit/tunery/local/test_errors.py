"""An error of this machine says what is wrong and how to fix it."""

from tunery.local.errors import LocalError


def test_an_error_is_printed_with_its_fix_on_a_line_of_its_own() -> None:
    error = LocalError("port 1 is taken", "choose another")
    assert str(error) == "port 1 is taken\n  fix: choose another"
    assert (error.what, error.fix) == ("port 1 is taken", "choose another")
