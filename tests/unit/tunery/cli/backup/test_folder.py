"""A damaged folder is refused by name."""

import pytest

from tests.unit.tunery.cli.backup.homes import PLAYED, Home
from tunery.cli.backup.restoring import check
from tunery.local.errors import LocalError
from tunery.runtime.bus.memory import MemoryLog


async def test_one_flipped_bit_is_refused_with_the_name_of_its_file(
    home: Home, busy: MemoryLog
) -> None:
    await home.take(busy)
    files = [p for p in home.backup.path.rglob("*") if p.suffix in {".gz", ".json"}]
    assert len(files) >= len(PLAYED) + 2  # segments, a list of objects, a manifest
    for file in files:
        sound = file.read_bytes()
        damaged = bytearray(sound)
        damaged[len(damaged) // 2] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(LocalError, match=rf"{file.name} was changed"):
            check(home.backup, None)
        file.write_bytes(sound)
    check(home.backup, None)
