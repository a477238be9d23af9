"""All invariants of a run of the core's scenario, with the rules as they are in the code."""

from collections import Counter
from functools import partial

from examples.first_stream import SEATS
from simulator.engine.verdict import Verdict
from simulator.event_core.invariants import (
    History,
    decided_once,
    no_refusal,
    no_silent_loss,
    not_too_far,
    only_accepted,
    ordered,
    outcomes_answered,
    reactions_complete,
    read_history,
    same_rows,
    same_view,
    ticketed_once,
    undecided,
    within_limit,
)
from simulator.event_core.run import ACTIVE, TAIL_LOST, UNKNOWN, Run
from simulator.event_core.streams import STREAMS, TALLY
from tunery.runtime.journal.reader import Accepted

Histories = dict[tuple[str, int], History]


def check(run: Run) -> Verdict:
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
    verdict.violations += within_limit(_accepted(histories, SEATS.name))
    verdict.violations += _views(run, histories) + run.died
    if not run.plan.faults.has(TAIL_LOST):
        verdict.violations += _nothing_lost(run, histories)
    named = [stop for stop in run.named if stop.startswith(tuple(run.forgiven))]
    unknown = [stop for stop in run.named if UNKNOWN in stop]
    counts.update({"losses named": len(named), "unknown events named": len(unknown)})
    counts.update({"work repeated": sum(run.worked.values())})
    verdict.counts = dict(counts)
    return verdict


def _histories(run: Run) -> Histories:
    return {
        (name, partition): read_history(
            partial(run.decider, name),
            partition,
            run.broker.history[stream.journal.name, partition],
            run.broker.history[stream.commands.name, partition],
        )
        for name, stream in STREAMS.items()
        for partition in sorted(ACTIVE[name])
    }


def _accepted(histories: Histories, stream: str) -> list[Accepted]:
    return [
        one
        for (name, _), history in histories.items()
        if name == stream
        for one in history.accepted
    ]


def _nothing_lost(run: Run, histories: Histories) -> list[str]:
    """What must hold as long as the log keeps what it has acknowledged."""
    seats, tally = _accepted(histories, SEATS.name), _accepted(histories, TALLY.name)
    found = [f"false stop: {stop}" for stop in run.named if not run.had_to_come(stop)]
    found += [f"false stop: {stop}" for stop in run.stops]
    for (name, partition), history in histories.items():
        stream = STREAMS[name]
        commands = run.broker.history[stream.commands.name, partition]
        found += history.violations + undecided(stream, history, commands)
    found += [
        f"trim: {one}"
        for one in run.trims
        if not not_too_far(histories[one.stream, one.partition], one.before, one.end)
    ]
    found += only_accepted(run.settled, histories)
    found += reactions_complete(seats, tally)
    found += ticketed_once(seats, run.worked) + run.repeated
    found += same_rows(run.rows, [*seats, *tally])
    found += outcomes_answered(run.outcomes, [*seats, *tally])
    if not run.finished:
        found.append("progress: not everything was decided and projected after faults stopped")
    return found


def _views(run: Run, histories: Histories) -> list[str]:
    """Every reader agrees with the log, or it has stopped and said so."""
    found: list[str] = []
    for name, views in run.views.items():
        for place, seen in views.items():
            where = f"{place[0]}/{place[1]}"
            if any(stop.startswith(f"{name}: {where} ") for stop in run.stops):
                continue
            who, history = f"{name} {where}", histories[place]
            if run.plan.faults.has(TAIL_LOST):
                found += no_silent_loss(who, history, seen)
            else:
                found += same_view(who, history, seen, name == "prompt")
    return found
