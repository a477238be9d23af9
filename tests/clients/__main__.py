"""`python -m tests.clients`: makes each program's environment, then runs those that there are.

Prints a line for each program that is skipped, and for what of one is left out. Exit status: that
of the tests, or 1 when there is no program at all.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.clients.program_tests import NEWEST_TINKER, ON_PAGE_RUNS, OTHERS, SHOWS, TRAINS
from tests.clients.programs import HERE, LEFT_OUT, MIRRORS, ON_PAGE, NoClient, command_of


def main() -> int:
    """Run the tests of the programs that can be had here."""
    tests, available = [NEWEST_TINKER], set[str]()
    for program in (*LEFT_OUT, *OTHERS):
        try:
            with tempfile.TemporaryDirectory() as folder:
                command_of(program, Path(folder))
        except NoClient as error:
            print(f"clients: {program} is skipped: {error}", flush=True)
            continue
        available.add(program)
        tests += OTHERS.get(program, (TRAINS.format(program),))
        if program in MIRRORS:
            tests.append(SHOWS.format(program))
        if program in ON_PAGE:
            tests.append(ON_PAGE_RUNS.format(program))
        if left_out := LEFT_OUT.get(program):
            print(f"clients: {program} runs without {left_out}", flush=True)
    if not available:
        return 1
    chosen = [f"{HERE / 'test_clients.py'}::{test}" for test in tests]
    if available.issuperset(MIRRORS):
        chosen.append(str(HERE / "test_integrations.py"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen]
    return subprocess.run([*command, *sys.argv[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
