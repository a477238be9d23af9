"""From the meter to the log: each token once, whatever is killed or sent twice."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from schemas.answers import CountAnswers
from schemas.envelope import Entry, Envelope
from schemas.streams import PARTITIONS
from schemas.topics import ACCOUNT, STREAMS, TOPICS
from services.engine.counting import AnswerCounts
from services.engine.meter import AnswerMeter
from tests.unit.services.engine.test_meter import ASKER, spent
from tunery.runtime.bus.abstract import Appended, AppendUnknown
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.sender import Sender
from tunery.runtime.clock import SystemClock
from tunery.runtime.journal.dedupe import Seen, recognise, remember
from tunery.work.engine import Asker, Spent

TENANTS = ("acme", "beta", "corp")
Tokens: TypeAlias = Counter[tuple[str, str]]
Step: TypeAlias = tuple[str, int, int, int]
STEPS = st.tuples(
    st.sampled_from(("answer", "leave", "begin", "send", "send in doubt", "kill")),
    st.integers(0, 2),
    st.integers(0, 9),
    st.integers(1, 9),
)


class DoubtfulLog(MemoryLog):
    """Appends of unknown outcome: some are in the log, some never, some come late."""

    def __init__(self) -> None:
        super().__init__()
        self.doubts: list[int] = []
        self.late: list[tuple[str, bytes, bytes]] = []

    async def send(
        self, topic: str, key: bytes, value: bytes, partition: int | None = None
    ) -> Appended:
        doubt = self.doubts.pop(0) if self.doubts else None
        if doubt == 1:
            self.late.append((topic, key, value))
        if doubt in (1, 2):
            raise AppendUnknown("lost on the way")
        appended = await super().send(topic, key, value, partition)
        if doubt == 0:
            raise AppendUnknown("the answer was lost")
        return appended


async def decided(log: MemoryLog) -> list[tuple[str, CountAnswers]]:
    """The commands that the owner of `account` decides, with their tenants."""
    commands = []
    for partition in range(PARTITIONS):
        seen = Seen()
        reader = await log.reader(ACCOUNT.commands.name, {partition: 0})
        for record in await reader.poll(0, 10_000):
            envelope = msgspec.json.decode(record.value, type=Envelope)
            if recognise(seen, envelope, at=1) is not None:
                continue
            seen = remember(seen, entry(envelope), ())
            commands.append(
                (envelope.tenant, msgspec.json.decode(envelope.body, type=CountAnswers))
            )
    return commands


def entry(envelope: Envelope) -> Entry:
    return Entry(
        epoch=0,
        cause=0,
        prev=b"",
        at=1,
        command_id=envelope.id,
        key=envelope.key,
        tenant=envelope.tenant,
        seq=1,
        source=envelope.source,
    )


async def played(folder: Path, steps: Sequence[Step]) -> tuple[Tokens, Tokens]:
    """Answers, clients that leave, kills, doubtful sends: tokens on the log, and answered."""
    log, answered = DoubtfulLog(), Tokens()
    await log.create(TOPICS, PARTITIONS)
    meter = AnswerMeter(folder)
    for kind, number, read, written in steps:
        counts = AnswerCounts(meter, Sender(log, STREAMS), SystemClock())
        tenant = TENANTS[number]
        if kind in ("answer", "leave", "begin"):
            tally = meter.begin(Asker(tenant, "key_1", f"model {number}"))
            for so_far in range(1, written + 1):
                tally.note(Spent(read, 0, so_far))
            answered[tenant, "requests"] += 1
            answered[tenant, "prompt_tokens"] += read
            answered[tenant, "completion_tokens"] += written
            if kind != "begin":  # else it is running when the file is closed, or the engine killed
                tally.end()
        elif kind == "kill":
            meter = AnswerMeter(folder)
        else:
            log.doubts = [number, read % 4] if kind == "send in doubt" else []
            try:
                await counts.send()
            except AppendUnknown:
                continue
    log.doubts = []
    await AnswerCounts(meter, Sender(log, STREAMS), SystemClock()).send()
    for topic, key, value in log.late:
        await log.send(topic, key, value)
    on_log = Tokens()
    for tenant, command in await decided(log):
        for use in command.uses:
            for name in ("requests", "prompt_tokens", "completion_tokens"):
                on_log[tenant, name] += getattr(use, name)
    return +on_log, +answered


@given(st.lists(STEPS, max_size=12))
def test_the_log_has_each_token_once(steps: list[Step]) -> None:
    with TemporaryDirectory() as folder:
        on_log, answered = asyncio.run(played(Path(folder), steps))
    assert on_log == answered


async def test_a_file_is_kept_until_all_of_it_is_on_the_log(tmp_path: Path) -> None:
    log = DoubtfulLog()
    await log.create(TOPICS, PARTITIONS)
    meter = AnswerMeter(tmp_path)
    for tenant in TENANTS:
        meter.begin(Asker(tenant, "key_1", "tiny")).note(spent(3, 1))
    counts = AnswerCounts(meter, Sender(log, STREAMS), SystemClock())
    log.doubts = [9, 2]
    try:
        await counts.send()
    except AppendUnknown:
        assert len(meter.closed_files()) == 1
    await counts.send()
    assert meter.closed_files() == []
    assert sorted(tenant for tenant, _ in await decided(log)) == sorted(TENANTS)


async def test_nothing_is_sent_while_nothing_is_asked(tmp_path: Path) -> None:
    log = DoubtfulLog()
    await log.create(TOPICS, PARTITIONS)
    meter = AnswerMeter(tmp_path)
    counts = AnswerCounts(meter, Sender(log, STREAMS), SystemClock())
    meter.begin(ASKER)
    await counts.send()
    assert await decided(log) == []
