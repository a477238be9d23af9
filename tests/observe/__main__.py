"""`python -m tests.observe`: rules, panels and alerts in a real Prometheus that scrapes a stack.

Where no Prometheus can be had it says so in a line. Exit status: that of the tests, or 1.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tunery.local import prometheus
from tunery.local.errors import LocalError

TESTS: Final = Path(__file__).parent


def main() -> int:
    """Run the tests, or say why they cannot run."""
    try:
        prometheus.install(*prometheus.PROGRAMS)
    except LocalError as error:
        print(f"observe: rules and dashboards are not tried: {error}", file=sys.stderr)
        return 1
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS)]
    return subprocess.run([*command, *sys.argv[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
