"""All invariants of a run of the core's scenario, with the rules as they are in the code."""

from collections import Counter
from functools import partial

from examples.first_stream import SEATS
from schemas import errors
from schemas.envelope import Rejected
from simulator.engine.cluster import keys_as
from simulator.engine.verdict import Verdict
from simulator.event_core.invariants import (
    History,
    at_their_level,
    commands_answered,
    decided_once,
    no_refusal,
    no_silent_loss,
    not_too_far,
    only_accepted,
    ordered,
    reactions_complete,
    read_history,
    same_rows,
    same_view,
    ticketed_once,
    undecided,
    within_limit,
)
from simulator.event_core.releases import SeatsPraised, SeatsRemarked
from simulator.event_core.run import ACTIVE, TAIL_LOST, EventCoreRun
from simulator.event_core.streams import STREAMS, TALLY
from tunery.runtime.journal.reader import Accepted

Histories = dict[tuple[str, int], History]


def check(run: EventCoreRun) -> Verdict:
    """The verdict on a run: its violations, and the sums that a report adds up."""
    histories = _histories(run)
    verdict = Verdict(faults=dict(run.tally.counts), trace=run.trace)
    counts = Counter[str]()
    for (stream, partition), history in histories.items():
        commands = len(run.broker.history[STREAMS[stream].commands.name, partition])
        counts.update(commands=commands, claims=history.claims, differing=history.elsewhere)
        verdict.voided += history.void
        if history.stale:
            verdict.faults["append after a newer claim"] = (
                verdict.faults.get("append after a newer claim", 0) + history.stale
            )
        accepted = history.accepted
        verdict.violations += ordered(accepted) + decided_once(accepted) + no_refusal(accepted)
        verdict.violations += at_their_level(accepted)
    verdict.violations += within_limit(_accepted(histories, SEATS.name))
    verdict.violations += _views(run, histories) + run.died
    if not run.plan.faults.has(TAIL_LOST):
        verdict.violations += _nothing_lost(run, histories)
    named = [stop for stop in run.named if stop.startswith(tuple(run.forgiven))]
    events = Counter(type(event) for each in histories.values() for event in each.events())
    counts.update({"losses named": len(named), "praised": events[SeatsPraised]})
    counts.update({"remarked": events[SeatsRemarked]})
    refused = sum(
        isinstance(event, Rejected) and event.code == errors.LEVEL_TOO_LOW
        for history in histories.values()
        for event in history.events()
    )
    counts.update({"refused below a level": refused})
    counts.update({"work repeated": sum(run.worked.values())})
    verdict.counts = dict(counts)
    return verdict


def _histories(run: EventCoreRun) -> Histories:
    return {
        (name, partition): read_history(
            partial(run.decider, name),
            partition,
            run.broker.history[stream.journal.name, partition],
            run.broker.history[stream.commands.name, partition],
            keys_as(stream.owner),
        )
        for name, stream in STREAMS.items()
        for partition in sorted(ACTIVE[name])
    }


def _accepted(histories: Histories, stream: str) -> list[Accepted]:
    return [
        decision
        for (name, _), history in histories.items()
        if name == stream
        for decision in history.accepted
    ]


def _nothing_lost(run: EventCoreRun, histories: Histories) -> list[str]:
    """Invariants that hold while the log loses no acknowledged record."""
    seats, tally = _accepted(histories, SEATS.name), _accepted(histories, TALLY.name)
    violations = [f"false stop: {stop}" for stop in run.named if not run.had_to_come(stop)]
    violations += [f"false stop: {stop}" for stop in run.stops]
    for (name, partition), history in histories.items():
        stream = STREAMS[name]
        commands = run.broker.history[stream.commands.name, partition]
        violations += history.violations + undecided(stream, history, commands)
    violations += [
        f"trim: {trim}"
        for trim in run.trims
        if not not_too_far(histories[trim.stream, trim.partition], trim.before, trim.end)
    ]
    violations += only_accepted(run.settled, histories)
    violations += reactions_complete(seats, tally)
    violations += ticketed_once(seats, run.worked) + run.repeated
    violations += same_rows(run.rows, [*seats, *tally])
    violations += commands_answered(run.command_results, [*seats, *tally])
    if not run.finished:
        violations.append("progress: not everything was decided and projected after faults stopped")
    return violations


def _views(run: EventCoreRun, histories: Histories) -> list[str]:
    """Every reader agrees with the log, or has stopped with an alarm."""
    violations: list[str] = []
    for name, views in run.views.items():
        for partition, seen in views.items():
            name_of_partition = f"{partition[0]}/{partition[1]}"
            if any(stop.startswith(f"{name}: {name_of_partition} ") for stop in run.stops):
                continue
            reader, history = f"{name} {name_of_partition}", histories[partition]
            if run.plan.faults.has(TAIL_LOST):
                violations += no_silent_loss(reader, history, seen)
            else:
                violations += same_view(reader, history, seen, name == "prompt")
    return violations
