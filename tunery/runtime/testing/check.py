"""All invariants of a run of the core scenario, with the rules as they are in the code."""

from collections import Counter

from tunery.runtime.testing.invariants import (
    History,
    decided_once,
    no_refusal,
    no_silent_loss,
    only_accepted,
    ordered,
    reactions_complete,
    read_history,
    same_view,
    undecided,
    within_limit,
)
from tunery.runtime.testing.scenario import ACTIVE, Run
from tunery.runtime.testing.toy import PLACES_AGGREGATE, TALLY_AGGREGATE
from tunery.runtime.testing.verdict import Verdict


def check(run: Run) -> Verdict:
    """All invariants, with the rules as they are in the code (not as a mutant had them)."""
    verdict = Verdict(faults=dict(run.tally.counts), trace=run.trace)
    counts = Counter[str]()
    histories: dict[tuple[str, int], History] = {}
    for aggregate in (PLACES_AGGREGATE, TALLY_AGGREGATE):
        stream = aggregate.stream
        for partition in sorted(ACTIVE[stream.name]):
            journal = run.broker.history[stream.journal.name, partition]
            commands = run.broker.history[stream.commands.name, partition]
            history = read_history(aggregate, partition, journal, commands)
            histories[stream.name, partition] = history
            counts.update(commands=len(commands), claims=history.claims)
            verdict.voided += history.void
            if not run.plan.faults.tail_loss:
                verdict.violations += history.violations
            verdict.violations += ordered(history.accepted)
            verdict.violations += decided_once(history.accepted) + no_refusal(history.accepted)
            if not run.plan.faults.tail_loss:
                verdict.violations += undecided(aggregate, history, commands)
    places = [one for (name, _), h in histories.items() if name == "places" for one in h.accepted]
    tally = [one for (name, _), h in histories.items() if name == "tally" for one in h.accepted]
    verdict.violations += within_limit(places) + run.died + run.trims
    verdict.violations += _views(run, histories)
    if not run.plan.faults.tail_loss:
        verdict.violations += [f"false stop: {stop}" for stop in run.named]
        verdict.violations += only_accepted(run.settled, histories)
        verdict.violations += reactions_complete(places, tally)
        if not run.finished:
            verdict.violations.append("progress: not everything was decided after faults stopped")
    verdict.counts = dict(counts)
    return verdict


def _views(run: Run, histories: dict[tuple[str, int], History]) -> list[str]:
    """Every reader agrees with the log, or it has stopped and said so."""
    found: list[str] = []
    for name, views in run.views.items():
        for place, seen in views.items():
            where = f"{place[0]}/{place[1]}"
            if any(stop.startswith(f"{name}: {where} ") for stop in run.named):
                continue
            who, history = f"{name} {where}", histories[place]
            if run.plan.faults.tail_loss:
                found += no_silent_loss(who, history, seen)
            else:
                found += same_view(who, history, seen, name == "prompt")
    return found
