"""Five rounds of `make soak`: one of each class of fault, against servers of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[5]
ROUNDS: Final = 5
STOP_S_MAX: Final = 120  # time for a soak to stop its processes after SIGTERM
SOAK_S_MAX: Final = 600  # a round without progress gives up before


def run_soak() -> tuple[dict[str, Any], int]:
    command = [sys.executable, "-m", "tests.soak", "--rounds", str(ROUNDS), "--seed", "1", "--json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            output, _ = process.communicate(timeout=SOAK_S_MAX)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.communicate(timeout=STOP_S_MAX)
            raise
    return json.loads(output), process.returncode


@pytest.mark.soak  # of which make soak has 50
def test_five_rounds_lose_duplicate_and_reorder_nothing() -> None:
    report, status = run_soak()
    assert report["problems"] == []
    assert status == 0
    kinds = {name.partition(" ")[0] for name in report["by_kind"]}
    assert kinds == {"kill", "zombie", "broker", "database", "failpoint"}
    assert report["unreached"] == []
    # The run was not idle: every kind of record exists, and a paused owner's append was void.
    assert report["commands_acknowledged"] > 500
    assert report["accepted"] > 2 * report["commands_acknowledged"]
    assert report["replies"] > 500
    assert report["stale_by_zombies"] > 0
    assert report["takeover_ms"]["n"] > 0
