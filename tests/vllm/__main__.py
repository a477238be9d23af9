"""`python -m tests.vllm`: makes the environment of vLLM, then runs the suite of engines over it.

Where its packages cannot be had it says so in a line. Exit status: that of the tests, or 1.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.environments import pinned_environment

HERE: Final = Path(__file__).parent
PINS: Final = HERE / "vllm.txt"


class NoVllm(Exception):
    """vLLM cannot run here."""


def vllm_python() -> Path:
    """The Python of its environment. Raises NoVllm."""
    try:
        return pinned_environment(PINS) / "python"
    except (OSError, subprocess.SubprocessError) as error:
        raise NoVllm(f"its packages cannot be installed: {error}") from error


def main() -> int:
    """Run the suite, or say why it cannot."""
    try:
        vllm_python()
    except NoVllm as error:
        print(f"vllm: the suite of engines is skipped: {error}", file=sys.stderr)
        return 1
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tests = str(HERE / "test_vllm.py")
    return subprocess.run([*command, tests, *sys.argv[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
