"""`python -m tests.clients`: makes each client's environment, then runs those that there are.

Prints a line for each client that is skipped, and for what of a client is left out. Exit status:
that of the tests, or 1 when there is no client at all.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.clients.programs import HERE, LEFT_OUT, NoClient, command_of


def main() -> int:
    """Run the tests of the clients that can be had here."""
    ready = []
    for client, left_out in LEFT_OUT.items():
        try:
            with tempfile.TemporaryDirectory() as folder:
                command_of(client, Path(folder))
        except NoClient as error:
            print(f"clients: {client} is skipped: {error}", flush=True)
            continue
        ready.append(client)
        if left_out:
            print(f"clients: {client} runs without {left_out}", flush=True)
    if not ready:
        return 1
    test = f"{HERE / 'test_clients.py'}::test_first_hour_s02_a_client_trains_a_model_unchanged"
    tests = [f"{test}[{client}]" for client in ready]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    return subprocess.run([*command, *sys.argv[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
