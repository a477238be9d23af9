"""promtool reads the rules, and their examples come true."""

import subprocess

import pytest

from tests.observe.prometheus import FOLDER
from tunery.local import prometheus


@pytest.mark.parametrize("command", ["check rules rules.yml", "test rules rules_test.yml"])
def test_observe_promtool_reads_the_rules_and_their_examples_come_true(command: str) -> None:
    done = subprocess.run(
        [str(prometheus.program("promtool")), *command.split()],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
