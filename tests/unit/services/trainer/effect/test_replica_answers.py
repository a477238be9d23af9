"""Tokens of replicas: each is sent once, also where its process was killed."""

from pathlib import Path

from services.engine.meter import AnswerMeter
from services.trainer.effect.replica_answers import ReplicaAnswers
from tests.unit.services.engine.test_counting import decided
from tests.unit.services.engine.test_meter import ASKER, spent
from tunery.platform.memory_servers import memory_servers
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.watchdog import wait_forever


async def test_what_replicas_counted_is_sent_once_and_folders_are_used_again(
    tmp_path: Path,
) -> None:
    servers = await memory_servers()
    log = servers.log
    assert isinstance(log, MemoryLog)
    sender = servers.runtime("trainer").sender
    answers = ReplicaAnswers(tmp_path, sender, servers.clock, wait_forever)
    first, second = answers.take("acme"), answers.take("acme")
    assert first != second
    killed, living = AnswerMeter(first), AnswerMeter(second)
    killed.begin(ASKER).note(spent(7, 4))
    living.begin(ASKER).note(spent(5, 1))
    await answers.send()
    assert await decided(log) == [], "both may still write"
    living.close_file()
    answers.give_back(first)  # its process is gone
    await answers.send()
    await answers.send()
    assert await tokens(log) == [4, 1]
    again = answers.take("acme")
    assert again == first
    later = AnswerMeter(again)
    later.begin(ASKER).note(spent(2, 9))
    later.close_file()
    await answers.send()
    assert await tokens(log) == [4, 1, 9]


async def test_a_replica_counts_for_its_own_tenant_and_stops_no_other(tmp_path: Path) -> None:
    """Its process writes these files, and may have been taken over by what it reads."""
    servers = await memory_servers()
    log = servers.log
    assert isinstance(log, MemoryLog)
    answers = ReplicaAnswers(
        tmp_path, servers.runtime("trainer").sender, servers.clock, wait_forever
    )
    hostile, broken, honest = (answers.take(tenant) for tenant in ("a", "a", "acme"))
    for folder, count in ((hostile, 7), (honest, 4)):
        meter = AnswerMeter(folder)
        meter.begin(ASKER).note(spent(1, count))
        meter.close_file()
    for name in ("b.jsonl", "c.jsonl"):
        (broken / name).touch()
    await answers.send()
    assert await tokens(log) == [4]


async def tokens(log: MemoryLog) -> list[int]:
    return [use.completion_tokens for _, command in await decided(log) for use in command.uses]
