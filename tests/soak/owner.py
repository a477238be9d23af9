"""An owner's process: production hosts over the soak's streams, which keep a diary.

A diary is a file for the checker: one JSON object a line, each written at once, so that a kill
loses none.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from schemas.streams import PARTITIONS
from tests.soak.failpoints import FailingLog, FailingStore, Failpoints, wrap_commits
from tests.soak.soak_streams import (
    BOARD,
    REQUESTS,
    REQUESTS_AGGREGATE,
    STREAMS,
    TALLY_AGGREGATE,
    Answer,
    Asked,
    react_requests,
)
from tunery.platform.ports import Runtime
from tunery.platform.process import main
from tunery.runtime.bus.sender import Sender
from tunery.runtime.bus.signing import UNSIGNED
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.owner import Settled
from tunery.runtime.hosts.projector import Projector
from tunery.runtime.hosts.reactor import Reactor
from tunery.runtime.journal.codec import canonical
from tunery.runtime.journal.ports import HostLimits
from tunery.runtime.journal.reader import START, JournalReader
from tunery.runtime.tasks import run_together
from tunery.runtime.verbs import Effect, Send
from tunery.runtime.watchdog import beat

SERVICE: Final = "soak"
FOLDER_VARIABLE: Final = "SOAK_FOLDER"
NAME_VARIABLE: Final = "SOAK_NAME"
#: those of production, except for snapshots and trimming, which must happen within minutes
LIMITS: Final = HostLimits(snapshot_every=150, trim_every=100, trim_every_ms=5_000)
LEASE_MS: Final = 4_000
EFFECTS_AT_ONCE: Final = 16
WITNESS_EVERY_MS: Final = 500
ATTEMPTS_MAX: Final = 1_000_000  # effects that fail on purpose are never given up


class Diary:
    """The diary of a process. A line is one write, so it is there as a whole or not at all."""

    def __init__(self, file: Path) -> None:
        self._out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, **fields: Any) -> None:
        os.write(self._out, json.dumps(fields).encode() + b"\n")


class Witness:
    """Implements `Host`: records hashes of what this process has read and of the states it holds.

    It reads every journal from zero with the production reader, and the states of this process's
    owners.
    """

    name = "witness"

    def __init__(
        self, runtime: Runtime, owners: Sequence[AggregateHost[Any]], diary: Diary
    ) -> None:
        self._runtime, self._owners, self._diary = runtime, owners, diary
        self._noted: dict[tuple[str, str, int], int] = {}

    async def ready(self) -> None:
        """Ready at once: no other host waits for a witness."""

    async def run(self) -> None:
        works: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "witness of states": self._look
        }
        for stream in STREAMS.values():
            positions = dict.fromkeys(range(PARTITIONS), START)
            reader = JournalReader(self._runtime.log, stream, positions)
            works[f"witness of {stream.name}"] = partial(self._read, stream.name, reader)
        await run_together(works)

    async def _read(self, stream: str, reader: JournalReader) -> None:
        hashes = {partition: hashlib.sha256() for partition in range(PARTITIONS)}
        try:
            await reader.open()
            while True:
                beat("working")
                for partition, batch in (await reader.read(WITNESS_EVERY_MS)).items():
                    for accepted in batch.accepted:
                        hashes[partition].update(b"%d:" % accepted.header.offset + accepted.value)
                    digest = hashes[partition].hexdigest()
                    self._note("prefix", stream, partition, batch.position.offset, digest)
                await self._runtime.clock.sleep(WITNESS_EVERY_MS)
        finally:
            await reader.close()

    async def _look(self) -> None:
        while True:
            beat("working")
            await self._runtime.clock.sleep(WITNESS_EVERY_MS)
            for host in self._owners:
                for partition, owner in host.owners.items():
                    if (fold := owner.settled) is None:
                        continue
                    state = json.loads(canonical(fold.state))
                    there = json.dumps({k: v for k, v in state.items() if v}, sort_keys=True)
                    digest = hashlib.sha256(there.encode()).hexdigest()
                    self._note("state", host.stream, partition, fold.position.offset, digest)

    def _note(self, what: str, stream: str, partition: int, offset: int, digest: str) -> None:
        if self._noted.get((what, stream, partition)) != offset:
            self._noted[what, stream, partition] = offset
            self._diary.write(
                what=what, stream=stream, partition=partition, offset=offset, digest=digest
            )


def answer(points: Failpoints, diary: Diary) -> Effect[Asked]:
    async def run(body: Asked, tenant: str, _: int = 1) -> Send | None:
        points.reach("effect.before")
        diary.write(what="effect", need=body.need)
        points.reach("effect.after")
        match body.way:
            case "answer":
                return Send("requests", tenant, tenant, Answer(need=body.need))
            case "drop":
                return None
            case "keep":
                raise ValueError("this effect fails on purpose: the need stays open")

    def exhausted(body: Asked, tenant: str, failure: str) -> Send:
        raise RuntimeError(f"{body.need} was given up: {failure}")

    return Effect(
        "answer",
        Asked,
        run,
        exhausted,
        row_lease_ms=LEASE_MS,
        concurrency=EFFECTS_AT_ONCE,
        tries_max=ATTEMPTS_MAX,
    )


async def build(runtime: Runtime) -> Sequence[Host]:
    folder, name = Path(os.environ[FOLDER_VARIABLE]), os.environ[NAME_VARIABLE]
    points = Failpoints(folder / f"{name}.armed")
    diary = Diary(folder / f"{name}.{os.getpid()}.diary")
    wrap_commits(points)
    topics = [topic for stream in STREAMS.values() for topic in (stream.commands, stream.journal)]
    await runtime.log.create(topics, PARTITIONS)

    def settled(decision: Settled) -> None:
        diary.write(
            what="settled",
            stream=decision.stream,
            partition=decision.partition,
            offset=decision.offset,
            id=decision.command_id,
            t_ns=time.monotonic_ns(),
        )
        points.reach("readback.after")

    log = cast(Any, FailingLog(runtime.log, points))
    store = cast(Any, FailingStore(runtime.store, points))
    # clients of the soak sign nothing
    mine = replace(runtime, log=log, store=store, sender=Sender(log, STREAMS), keys=UNSIGNED)
    owners = [
        AggregateHost(mine, aggregate, limits=LIMITS, on_settled=settled)
        for aggregate in (REQUESTS_AGGREGATE, TALLY_AGGREGATE)
    ]
    return (
        *owners,
        Reactor(mine, REQUESTS, react_requests, streams=STREAMS),
        EffectHost(mine, (answer(points, diary),)),
        Projector(mine, BOARD),
        Witness(mine, owners, diary),
    )


if __name__ == "__main__":
    main(SERVICE, build)
