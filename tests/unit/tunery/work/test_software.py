"""The software of a training: what changes its hash, and what does not."""

import platform
from pathlib import Path

from tunery.work.software import LOCK, ROOT, code_sha256, installed_software


def test_the_installation_is_described_by_versions_and_hashes() -> None:
    facts = installed_software()
    assert facts["python"] == platform.python_version()
    hashes = {name for name in facts if name.endswith("_sha256")}
    assert hashes == {"tunery_sha256", "packages_sha256", "requirements_sha256"}
    assert all(len(facts[name]) == 64 for name in hashes)
    assert (ROOT / LOCK).is_file()


def test_the_hash_of_code_follows_names_and_contents_of_sources(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.py").write_text("x = 1\n")
    first = code_sha256(tmp_path, ("a",))
    (tmp_path / "a" / "b" / "c.pyc").write_text("compiled")
    (tmp_path / "other.py").write_text("x = 2\n")
    assert code_sha256(tmp_path, ("a",)) == first
    (tmp_path / "a" / "b" / "c.py").write_text("x = 2\n")
    changed = code_sha256(tmp_path, ("a",))
    (tmp_path / "a" / "b" / "c.py").rename(tmp_path / "a" / "c.py")
    assert len({first, changed, code_sha256(tmp_path, ("a",))}) == 3
