"""`python -m tests.kubernetes`: builds a control plane once, then runs the suite on it.

Where it cannot be built it says so in a line. Exit status: that of the tests, or 1.
With `--if-built` first it builds none: without one it says that nothing is run, and exits 0.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tunery.local.errors import LocalError
from tunery.local.kubernetes.programs import folder_of_programs, programs_path

IF_BUILT: Final = "--if-built"

# The longest ones first, one for each worker.
FILES: Final = ("failures", "flow", "leases", "laptop", "chart", "scale")


def main() -> int:
    """Run the suite, or say why it cannot."""
    arguments = sys.argv[1:]
    if arguments[:1] == [IF_BUILT]:
        arguments.pop(0)
        if not programs_path().exists():
            print("kubernetes: not run: `make test-kubernetes` builds a control plane first")
            return 0
    try:
        folder_of_programs()
    except LocalError as error:
        print(f"kubernetes: the suite is not run: {error}", file=sys.stderr)
        return 1
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        # Two control planes: tests wait for one most of the time.
        *("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "--durations=10"),
        *("-m", "not soak"),
        *(str(Path(__file__).with_name(f"test_{name}.py")) for name in FILES),
    ]
    return subprocess.run([*command, *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
