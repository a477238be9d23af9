"""The verdict on a run: sound as it was played, and a violation for each thing that is forged."""

from collections import Counter
from dataclasses import replace

import pytest

from examples.first_stream import SEATS
from simulator.engine.faults import Faults
from simulator.event_core.check import check
from simulator.event_core.run import EventCorePlan, EventCoreRun, Trim
from simulator.event_core.simulation import play
from simulator.event_core.streams import STREAMS
from tunery.runtime.hosts.owner import Settled


@pytest.fixture(scope="module")
def sound() -> EventCoreRun:
    return play(EventCorePlan(1, Faults(), requests=3))


def violated(run: EventCoreRun) -> list[str]:
    """Names of the invariants that the verdict finds broken."""
    return sorted(check(run).violated)


def test_a_quiet_run_is_sound_and_is_counted(sound: EventCoreRun) -> None:
    verdict = check(sound)
    assert verdict.violations == []
    assert verdict.voided == 0
    commands = {stream.commands.name for stream in STREAMS.values()}
    assert verdict.counts["commands"] == sum(
        len(records) for (topic, _), records in sound.broker.history.items() if topic in commands
    )
    assert verdict.counts["claims"] > 0
    assert verdict.counts["losses named"] == 0


@pytest.mark.parametrize(
    ("forged", "invariant"),
    [
        (lambda run: replace(run, finished=False), "progress"),
        (lambda run: replace(run, died=["hung: p1 owner"]), "hung"),
        (lambda run: replace(run, stops=["prompt: seats/3 stopped"]), "false stop"),
        (lambda run: replace(run, named=["seats/3@7 diverged"]), "false stop"),
        (lambda run: replace(run, worked=Counter()), "effect"),
        (lambda run: replace(run, repeated=["effect: c ran again"]), "effect"),
        (lambda run: replace(run, command_results={}), "outcome"),
        (lambda run: replace(run, rows={name: {} for name in run.rows}), "rows"),
        (lambda run: replace(run, settled=[Settled("seats", 0, 99, "c")]), "read-back"),
    ],
)
def test_what_is_forged_is_found(sound: EventCoreRun, forged: object, invariant: str) -> None:
    assert callable(forged)
    assert violated(forged(sound)) == [invariant]


def test_a_stop_that_had_to_come_is_forgiven_and_counted(sound: EventCoreRun) -> None:
    stop = "seats/3@7 diverged"
    verdict = check(replace(sound, named=[stop], forgiven=["seats/3@7"]))
    assert verdict.violations == []
    assert verdict.counts["losses named"] == 1


def test_a_reader_that_saw_something_else_disagrees(sound: EventCoreRun) -> None:
    name, partitions = next(iter(sound.views.items()))
    partition, seen = next((at, seen) for at, seen in partitions.items() if seen)
    forged = {**sound.views, name: {**partitions, partition: [b"other", *seen[1:]]}}
    assert violated(replace(sound, views=forged)) == ["agreement"]
    excused = [f"{name}: {partition[0]}/{partition[1]} stopped"]
    stopped = replace(sound, views=forged, stops=excused, forgiven=excused)
    assert violated(stopped) == ["false stop"]  # it said so, although there was no reason


def test_a_prompt_reader_must_have_seen_all(sound: EventCoreRun) -> None:
    partitions = sound.views["prompt"]
    partition, seen = next((at, seen) for at, seen in partitions.items() if seen)
    behind = {**sound.views, "prompt": {**partitions, partition: seen[:-1]}}
    assert violated(replace(sound, views=behind)) == ["agreement"]
    no_records: dict[tuple[str, int], list[bytes]] = {at: [] for at in sound.views["slow"]}
    slow = {**sound.views, "slow": no_records}
    assert violated(replace(sound, views=slow)) == []


def test_trimming_the_last_decided_command_is_too_far(sound: EventCoreRun) -> None:
    topic = SEATS.journal.name
    partition = next(at for (name, at), records in sound.broker.history.items() if name == topic)
    end = len(sound.broker.history[topic, partition])
    for before, wrong in ((0, []), (end, ["trim"])):
        trims = [Trim(SEATS.name, partition, before, end)]
        assert violated(replace(sound, trims=trims)) == wrong


def test_a_record_that_is_missing_in_the_journal_is_found(sound: EventCoreRun) -> None:
    topic = SEATS.journal.name
    history = next(records for (name, _), records in sound.broker.history.items() if name == topic)
    kept = history[-1]
    del history[-1]
    try:
        assert "progress" in violated(sound)
    finally:
        history.append(kept)
    assert violated(sound) == []
