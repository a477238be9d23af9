"""`python -m tests.containers`: the tests of our servers' ports over official images.

testcontainers starts the images that `infra/compose` names. Where no container engine answers, or
its packages cannot be had, one line says so and nothing is run. Exit status: that of the tests.
"""

import os
import subprocess
import sys
from typing import Final

from tests.containers.official import NoContainers, containers
from tests.stacks import ELSEWHERE

#: what asks servers alone, and neither stops them nor logs in as one of several accounts
TESTS: Final = (
    "tests/integration/tunery/platform/blobs",
    "tests/integration/tunery/platform/bus/test_kafka.py",
    "tests/integration/tunery/platform/store/test_postgres.py",
    "tests/integration/services/gateway/test_rates.py",
    "tests/integration/services/billing/test_ledger.py",
)


def main() -> int:
    """Run the tests, or say why not."""
    try:
        with containers() as where:
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
            environment = {**os.environ, **where, ELSEWHERE: "1"}
            return subprocess.run(
                [*command, *sys.argv[1:]], env=environment, check=False
            ).returncode
    except NoContainers as error:
        print(f"containers: skipped: {error}")
        return 0


if __name__ == "__main__":
    sys.exit(main())
