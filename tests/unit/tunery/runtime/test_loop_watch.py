"""Real processes: one whose event loop is blocked is ended; one that was merely stopped is not."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tunery.platform.process import EXIT_HOST_LOST

ROOT: Final = Path(__file__).parents[4]
START_S_MAX: Final = 60
END_S_MAX: Final = 120
#: bounds of the process under test
LOOK_EVERY_MS: Final = 50
BLOCKED_MS_MAX: Final = 1_000
SERVICE: Final = f"""
import sys, time
from contextlib import asynccontextmanager
from tunery.runtime import loop_watch
from tunery.platform import (process)
from tunery.platform.memory_servers import memory_servers
from tunery.runtime.watchdog import wait_forever

loop_watch.LOOK_EVERY_MS, loop_watch.BLOCKED_MS_MAX = {LOOK_EVERY_MS}, {BLOCKED_MS_MAX}
loop_watch.REPORT_MS_MAX = 300

@asynccontextmanager
async def in_memory(name, settings):
    yield (await memory_servers()).runtime(name)

process.open_runtime = in_memory

class Host:
    name = "host"
    async def ready(self): ...
    async def run(self):
        print("runs", flush=True)
        {{body}}

async def build(runtime):
    return [Host()]

process.main("toy", build)
"""
SLEEPS: Final = "time.sleep(600)"
WAITS: Final = "await wait_forever()"
#: as a call that holds the lock of the log, which the report would wait for
HOLDS_THE_LOG: Final = "import logging; logging.getLogger().handlers[0].acquire(); time.sleep(600)"


@contextmanager
def service(body: str, output: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A service with one host, which runs `body`; entered when it does."""
    names = ("KAFKA_BOOTSTRAP", "POSTGRES_DSN", "S3_ENDPOINT", "S3_ACCESS_KEY", "S3_SECRET_KEY")
    settings = {f"TUNERY_{name}": "in-memory" for name in names}
    with (
        output.open("wb") as out,
        subprocess.Popen(
            [sys.executable, "-c", SERVICE.format(body=body)],
            env={
                **os.environ,
                **settings,
                "TUNERY_DATA_DIR": str(output.parent),
                "PYTHONPATH": str(ROOT),
            },
            stdout=out,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            deadline = time.monotonic() + START_S_MAX
            while b"runs" not in output.read_bytes():
                assert time.monotonic() < deadline, output.read_text()
                assert process.poll() is None, output.read_text()
                time.sleep(0.02)
            yield process
        finally:
            process.kill()


def test_process_with_a_blocked_loop_is_reported_and_ended(tmp_path: Path) -> None:
    output = tmp_path / "log"
    with service(SLEEPS, output) as process:
        assert process.wait(END_S_MAX) == EXIT_HOST_LOST
    lines = [json.loads(line) for line in output.read_text().splitlines() if line[:1] == "{"]
    (blocked,) = [line for line in lines if line["event"] == "process.blocked"]
    assert (blocked["level"], blocked["blocked_ms"]) == ("critical", BLOCKED_MS_MAX)
    assert "time.sleep" in blocked["stack"] or "in run" in blocked["stack"]
    threads = {line["thread"] for line in lines if line["event"] == "thread.dump"}
    assert {"MainThread", "loop watch"} <= threads


@pytest.mark.long
def test_process_whose_log_is_blocked_dumps_its_stacks_and_is_ended(tmp_path: Path) -> None:
    output = tmp_path / "log"
    with service(HOLDS_THE_LOG, output) as process:
        assert process.wait(END_S_MAX) == EXIT_HOST_LOST
    text = output.read_text()
    assert "process.blocked" not in text
    assert "most recent call first" in text


@pytest.mark.long
def test_process_that_was_stopped_for_longer_than_the_bound_goes_on(tmp_path: Path) -> None:
    output = tmp_path / "log"
    with service(WAITS, output) as process:
        for _ in range(3):
            process.send_signal(signal.SIGSTOP)
            time.sleep(1.5 * BLOCKED_MS_MAX / 1_000)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.2)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(BLOCKED_MS_MAX / 1_000)
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_S_MAX) == 0
    assert "process.blocked" not in output.read_text()
