from pathlib import Path

import pytest

from tunery.ml.free_memory import free_bytes, machine_bytes

MEMINFO = "MemTotal:       24000 kB\nMemAvailable:    9000 kB\n"


@pytest.mark.parametrize(
    ("limit", "free"),
    [("max", 9000 * 1024), ("5000000", 4_000_000), ("900000", 0), (None, 9000 * 1024)],
)
def test_the_limit_of_a_container_counts(tmp_path: Path, limit: str | None, free: int) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    if limit is not None:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text("1000000\n")
    assert free_bytes(tmp_path / "meminfo", tmp_path) == free
    has = 24_000 * 1024 if limit in ("max", None) else int(limit)
    assert machine_bytes(tmp_path / "meminfo", tmp_path) == min(has, 24_000 * 1024)


def test_a_kernel_that_does_not_say_has_none(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "meminfo", tmp_path) == 0
    assert machine_bytes(tmp_path / "meminfo", tmp_path) == 0


def test_this_machine_says_it() -> None:
    assert 0 < free_bytes() <= machine_bytes()
