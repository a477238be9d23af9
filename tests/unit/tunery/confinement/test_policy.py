"""Folders with links, and limits."""

from pathlib import Path

import pytest

from tunery.confinement.policy import ConfinementPolicy, with_links

pytestmark = pytest.mark.security


def test_files_that_links_of_a_folder_lead_to_are_named(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "blob").write_text("weights")
    (tmp_path / "base" / "model").symlink_to(tmp_path / "blob")
    assert with_links([tmp_path / "base"]) == (str(tmp_path / "base"), str(tmp_path / "blob"))


def test_core_dumps_are_never_written() -> None:
    assert ConfinementPolicy().limits["CORE"] == 0


def test_a_policy_covers_another_whose_files_are_below_its_own() -> None:
    outer = ConfinementPolicy(read=("/bases",), write=("/scratch",))
    assert outer.covers(ConfinementPolicy(read=("/bases/a", "/scratch/x"), write=("/scratch/x",)))
    assert outer.covers(outer)
    assert not outer.covers(ConfinementPolicy(read=("/bases-of-others",)))
    assert not outer.covers(ConfinementPolicy(read=("/",)))
    assert not outer.covers(ConfinementPolicy(write=("/bases/a",)))
