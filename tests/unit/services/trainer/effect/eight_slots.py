"""An agent in a process of its own, which tests kill: `python -m … FOLDER`.

It has the eight devices of a driver in memory, and runs leases of one, two and four slots, with a
rank for each slot.
"""

import asyncio
import sys
from pathlib import Path
from typing import Final

import pytest

from schemas import pool
from services.trainer.adapters.hardware import probe
from tests.unit.services.trainer.adapters.eight_devices import EightDevices
from tests.unit.services.trainer.effect import machines
from tests.unit.services.trainer.effect.machines import Script
from tunery.platform.memory_servers import memory_servers

READY: Final = "ready\n"
BEGUN: Final = "begun"
#: a rank outlives its agent from here on
SLEEPS: Final = f"import os; open('{BEGUN}' + os.environ.get('RANK', ''), 'w'); time.sleep(600)"
START_S_MAX: Final = 60


async def main(folder: Path) -> None:
    """Run until killed; says when all leases have begun."""
    EightDevices().install(pytest.MonkeyPatch())
    machines.WAIT_S_MAX = START_S_MAX
    world, hardware = await memory_servers(), probe()
    async with machines.node(
        *(world, folder, lambda lease: Script(then=SLEEPS, ranks=lease.slots)), hardware=hardware
    ) as here:
        for slots in (1, 2, 4):
            await here.request(f"job{slots}", slots=slots, device="cuda")
        await here.until(pool.LeaseStarted, 3)
        while len([*folder.rglob(f"{BEGUN}*")]) < 7:  # noqa: ASYNC110  # files
            await asyncio.sleep(0.05)
        print(READY, end="", flush=True)
        await asyncio.sleep(10 * START_S_MAX)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
