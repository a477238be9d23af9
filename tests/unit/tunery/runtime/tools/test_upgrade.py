"""Processes that block a raise: those whose last announcement is fresh and signed."""

from typing import Final

import msgspec
import pytest

from schemas.levels import SILENT_MS, ReleaseNotice
from schemas.streams import RELEASES_TOPIC, UPGRADE_PARTITION
from schemas.topics import SOURCES
from tunery.platform.bus.sender_keys import keys_of
from tunery.platform.memory_servers import memory_servers
from tunery.runtime.bus.abstract import Record
from tunery.runtime.bus.signing import SenderKeys, operator_keys
from tunery.runtime.tools.upgrade import (
    RunningProcess,
    UpgradeState,
    raise_level,
    read_upgrade,
    running,
)

SECRET: Final = b"s" * 32
OPERATOR: Final = operator_keys(SECRET, "operator")
NOW: Final = 1_000_000


def record(
    process: str, level: int = 1, at: int = NOW, by: str = "", *, ended: bool = False
) -> Record:
    """An announcement, signed by `by`; by default by the process itself."""
    service = process.partition("@")[0]
    notice = ReleaseNotice(
        service=service, process=process, release=f"0.{level}.0", level=level, ended=ended
    )
    value = keys_of(SECRET, by or service).sign(RELEASES_TOPIC, msgspec.json.encode(notice))
    return Record(UPGRADE_PARTITION, 0, at, process.encode(), value)


def names(*records: Record) -> dict[str, tuple[int, bool]]:
    processes = running(records, OPERATOR, NOW)
    return {each.process: (each.level, each.proven) for each in processes}


def test_the_last_word_of_a_process_counts() -> None:
    known = names(record("billing@a:1"), record("billing@b:1", 2), record("billing@a:1", 2))
    assert known == {"billing@a:1": (2, True), "billing@b:1": (2, True)}


def test_ended_and_silent_processes_do_not_block_the_raise() -> None:
    assert names(record("billing@a:1"), record("billing@a:1", ended=True)) == {}
    assert names(record("billing@a:1", at=NOW - SILENT_MS)) == {}
    assert names(record("billing@a:1", at=NOW - SILENT_MS + 1)) != {}


def test_a_process_cannot_announce_another_one() -> None:
    own, others = record("scheduler@a:1"), record("scheduler@a:1", 2, by="node.gpu-07")
    assert names(own, others) == {"scheduler@a:1": (1, True)}
    assert names(others) == {"scheduler@a:1": (2, False)}


def state(*processes: RunningProcess, missing: tuple[str, ...] = ()) -> UpgradeState:
    return UpgradeState(
        level=1, levels={"job": 1}, readable=2, processes=processes, missing=missing
    )


def process(level: int, *, proven: bool = True) -> RunningProcess:
    return RunningProcess(
        service="billing",
        process="billing@a:1",
        release="0.1.0",
        level=level,
        silent_ms=10,
        proven=proven,
    )


@pytest.mark.parametrize(
    ("upgrade", "why"),
    [
        (state(process(1)), "billing@a:1: release 0.1.0 reads up to level 1"),
        (state(process(2, proven=False)), "billing@a:1: its announcement is not signed; give it"),
        (state(process(2), missing=("scheduler",)), "scheduler: no process of it runs"),
    ],
)
def test_processes_that_cannot_read_the_next_level_are_named(
    upgrade: UpgradeState, why: str
) -> None:
    (waited_for,) = upgrade.waited_for()
    assert waited_for.startswith(why)
    assert state(process(2)).waited_for() == []


async def test_the_level_of_the_log_is_the_lowest_of_its_streams() -> None:
    log = (await memory_servers()).log
    assert (await read_upgrade(log, OPERATOR, SOURCES, NOW)).level == 1
    *most, last = sorted(SOURCES)
    await raise_level(log, OPERATOR, most, 2, "ada@desk")
    await raise_level(log, SenderKeys("gateway", {}, {}, SECRET), [last], 2, "mallory")
    unfinished = await read_upgrade(log, OPERATOR, SOURCES, NOW)
    assert (unfinished.level, unfinished.levels[last]) == (1, 1)
    await raise_level(log, OPERATOR, [last], 2, "ada@desk")
    assert (await read_upgrade(log, OPERATOR, SOURCES, NOW)).level == 2
    assert unfinished.missing == tuple(sorted(set(SOURCES.values())))
