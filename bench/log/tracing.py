"""Measures the processor time of traces per decision: off, one of 50 requests sampled, all.

The log is in memory: the client of Kafka, and Kafka beside it, take more time than spans and vary
by more. Blocks of one partition's commands alternate: without traces, with requests that are not
sampled, with those that are. The best block of each counts: processor time differs less than the
wall's on a machine that others use, and spans are encoded and sent by a thread of the process that
decides. A receiver of its own takes them; a block lasts until it has them all. With one request of
50 sampled, 49 of 50 decisions cost what those of the second kind do: a block of such requests would
have fewer spans than one batch.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, repeat
from typing import Final

import msgspec

from bench.log import owners
from schemas.envelope import Envelope
from tunery.platform.memory_servers import memory_servers
from tunery.runtime.telemetry.traces import ENDPOINTS, start_traces, stop_traces
from tunery.runtime.telemetry.trail import REQUEST

ROUNDS: Final = 24
BLOCK: Final = 1_500  # commands
TRACE: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
SHARE: Final = 50
OFF: Final = "off"
#: the `traceparent` of commands of each kind
PARENTS: Final[dict[str, str | None]] = {
    OFF: None,
    "unsampled": f"{TRACE}-00",
    "sampled": f"{TRACE}-01",
}
#: it prints its address, takes spans until its input ends, and prints how many there were
RECEIVER: Final = (
    "import sys; from tests.otlp import receiving_spans\n"
    "with receiving_spans() as got: print(got.endpoint, flush=True); sys.stdin.read()\n"
    "print(len(got.spans))"
)


class SpansLost(Exception):
    """Spans that are not sent cost nothing."""


async def measure(block: int = BLOCK) -> dict[str, float]:
    """Microseconds of a decision without traces, and how many more it takes with them.

    block: how many commands are in one.
    """
    parents = [parent for _ in range(ROUNDS) for parent in _parents_of_round(block)]
    commands = [*map(_led_by, owners.first_commands(len(parents)), parents)]
    blocks, stream = Blocks(block), owners.stream_of("traced")
    servers = await memory_servers()
    bundle = owners.OwnerPorts("bench", servers.log, servers.clock, servers.blobs)
    with _receiver(sum(map(_is_sampled, parents))):
        await owners.settle(bundle, stream, commands, blocks.count)
    best = {name: min(spent) for name, spent in blocks.spent_s.items()}
    untraced, unsampled, sampled = (1e6 * best[kind] / block for kind in PARENTS)
    share = ((SHARE - 1) * unsampled + sampled) / SHARE
    return {
        "untraced_cpu_us": untraced,
        "sampled_cpu_us": share - untraced,
        "traced_cpu_us": sampled - untraced,
    }


class Blocks:
    """CPU time of blocks of decisions, each with separate traces.

    spent_s: CPU time of the blocks of each kind, until their last span was sent.
    """

    def __init__(self, size: int) -> None:
        self.spent_s: dict[str, list[float]] = {name: [] for name in PARENTS}
        self._size, self._settled = size, 0
        self._kinds = cycle(PARENTS)
        self._begin()

    def count(self) -> None:
        """Count a settled decision."""
        self._settled += 1
        if self._settled % self._size == 0:
            stop_traces()
            self.spent_s[self._kind].append(time.process_time() - self._begun_s)
            self._begin()

    def _begin(self) -> None:
        self._kind = next(self._kinds)
        if self._kind != OFF:
            start_traces("bench")
        self._begun_s = time.process_time()


@contextmanager
def _receiver(spans: int) -> Iterator[None]:
    """Raises SpansLost when it does not get so many spans."""
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
            received = process.stdout.read().strip()
    if received != str(spans):
        raise SpansLost(f"{received} of {spans} spans were received: make the blocks smaller")


def _parents_of_round(block: int) -> Iterator[str | None]:
    """Yield the parent of each decision in one block of each kind."""
    for parent in PARENTS.values():
        yield from repeat(parent, block)


def _is_sampled(parent: str | None) -> bool:
    return parent is not None and parent.endswith("-01")


def _led_by(value: bytes, parent: str | None) -> bytes:
    """The command as a request with this `traceparent` leads to it."""
    envelope = msgspec.json.decode(value, type=Envelope)
    request = f"{REQUEST}{envelope.correlation}"
    led = msgspec.structs.replace(envelope, correlation=request, traceparent=parent)
    return msgspec.json.encode(led)
