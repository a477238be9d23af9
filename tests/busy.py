"""`python -m tests.busy COMMAND…`: the command beside two busy loops; its exit status.

A machine on which everything is late finds what an idle one hides.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LOOPS: Final = 2
COMMAND_S_MAX: Final = 3 * 3_600


@contextmanager
def busy_loops(seconds_max: int) -> Iterator[None]:
    """Endless loops beside us; they end by themselves should this process be killed."""
    command = ("timeout", str(seconds_max), "sh", "-c", "while :; do :; done")
    loops = [subprocess.Popen(command) for _ in range(LOOPS)]
    try:
        yield
    finally:
        for process in loops:
            process.terminate()
        for process in loops:
            process.wait()


def main(command: list[str]) -> int:
    """Run the command to its end; the loops end with it."""
    with busy_loops(COMMAND_S_MAX):
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
