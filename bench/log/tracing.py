"""What traces cost a decision, in processor time: off, with one request of 50 sampled, with all.

Rounds alternate, and the best of each counts: processor time differs less than the wall's on a
machine that others use, and spans are sent by a thread of the process that decides. A receiver of
its own takes them.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Final

import msgspec

from bench.log import owners
from schemas.envelope import Envelope
from tunery.runtime.settings import RuntimeSettings
from tunery.runtime.telemetry.traces import ENDPOINTS, start_traces, stop_traces
from tunery.runtime.telemetry.trail import REQUEST

ROUNDS: Final = 3
TRACE: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
SHARE: Final = 50
#: parents of successive commands
PARENTS: Final[dict[str, tuple[str | None, ...]]] = {
    "off": (None,),
    "some": (f"{TRACE}-01", *(SHARE - 1) * (f"{TRACE}-00",)),
    "all": (f"{TRACE}-01",),
}
#: it prints its address, and takes spans until its input ends
RECEIVER: Final = (
    "import sys; from tests.otlp import receiving_spans\n"
    "with receiving_spans() as got: print(got.endpoint, flush=True); sys.stdin.read()"
)


async def measure(settings: RuntimeSettings, commands: int) -> dict[str, float]:
    """Microseconds of a decision, best of the rounds, and what the other two are of that."""
    best = dict.fromkeys(PARENTS, float("inf"))
    with _receiver():
        for round_number in range(ROUNDS):
            for name, parents in PARENTS.items():
                with _tracing(off=name == "off"):
                    took_us = await _decide(settings, f"{name}{round_number}", parents, commands)
                best[name] = min(best[name], took_us)
    return {
        "untraced_cpu_us": best["off"],
        "sampled_cpu_ratio": best["some"] / best["off"],
        "traced_cpu_ratio": best["all"] / best["off"],
    }


@contextmanager
def _receiver() -> Iterator[None]:
    command = (sys.executable, "-c", RECEIVER)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        os.environ[ENDPOINTS[0]] = process.stdout.readline().strip()
        try:
            yield
        finally:
            del os.environ[ENDPOINTS[0]]
            process.stdin.close()


@contextmanager
def _tracing(*, off: bool) -> Iterator[None]:
    if off:
        yield
        return
    start_traces("bench")
    try:
        yield
    finally:
        stop_traces()


async def _decide(
    settings: RuntimeSettings, name: str, parents: Sequence[str | None], commands: int
) -> float:
    """Processor time of a decision from the first that is settled to the last."""
    led = [*map(_led_by, owners.first_commands(commands), cycle(parents))]
    spent_s = await owners.settle(settings, owners.stream_of(name), led, time.process_time)
    return 1e6 * spent_s / (commands - 1)


def _led_by(value: bytes, parent: str | None) -> bytes:
    """The command as a request with this `traceparent` leads to it."""
    envelope = msgspec.json.decode(value, type=Envelope)
    request = f"{REQUEST}{envelope.correlation}"
    led = msgspec.structs.replace(envelope, correlation=request, traceparent=parent)
    return msgspec.json.encode(led)
