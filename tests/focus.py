"""`python -m tests.focus`: makes the environment of the FinOps Foundation's validator of FOCUS.

It needs a newer Python than Tunery does. Exit status 1, and one line of why, where there is none or
the packages cannot be had.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.environments import environment
from tests.pythons import interpreters

VALIDATOR: Final = ("focus-validator", "2.2.1", "pyarrow<21")  # newer ones need NumPy 2
PYTHON_MIN: Final = (3, 12)


class NoValidator(Exception):
    """The validator cannot run here."""


def validator_programs() -> Path:
    """The folder of its programs. Raises NoValidator."""
    newer = {version: path for version, path in interpreters().items() if version >= PYTHON_MIN}
    if not newer:
        raise NoValidator("there is no Python 3.12 or newer (pyenv install 3.12)")
    try:
        return environment(*VALIDATOR, python=newer[min(newer)])
    except (OSError, subprocess.SubprocessError) as error:
        raise NoValidator(f"its packages cannot be installed: {error}") from error


def main() -> int:
    """Make the environment, or say why there is none."""
    try:
        validator_programs()
    except NoValidator as error:
        print(f"focus: exported files are not validated: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
