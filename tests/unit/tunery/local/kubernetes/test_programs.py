"""Programs of the control plane are built with Go, or it is said how to get it."""

import shutil

import pytest

from tunery.local.errors import LocalError
from tunery.local.kubernetes import programs


def test_without_go_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(programs, "go_binary", lambda: None)
    with pytest.raises(LocalError, match="install Go"):
        programs.go_program()
