"""python -m tunery.runtime.testing.sim --seeds N [--first F] | --seed N --trace

Plays seeds and checks the invariants; progress on stderr, one JSON object last on stdout.
"""

import argparse
import json
import logging
import sys
import time
from dataclasses import dataclass, field
from typing import Any

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
from tunery.runtime.testing.scenario import ACTIVE, Run, play
from tunery.runtime.testing.toy import PLACES_AGGREGATE, TALLY_AGGREGATE

PROGRESS_EVERY = 100


@dataclass
class Verdict:
    seed: int
    violations: list[str] = field(default_factory=list)
    commands: int = 0
    claims: int = 0
    void: int = 0
    faults: dict[str, int] = field(default_factory=dict)


def check(run: Run) -> Verdict:
    """All invariants, with the rules as they are in the code (not as a mutant had them)."""
    verdict = Verdict(run.seed, faults=dict(run.tally.counts))
    histories: dict[tuple[str, int], History] = {}
    for aggregate in (PLACES_AGGREGATE, TALLY_AGGREGATE):
        stream = aggregate.stream
        for partition in sorted(ACTIVE[stream.name]):
            journal = run.broker.history[stream.journal.name, partition]
            commands = run.broker.history[stream.commands.name, partition]
            history = read_history(aggregate, partition, journal, commands)
            histories[stream.name, partition] = history
            verdict.commands += len(commands)
            verdict.claims += history.claims
            verdict.void += history.void
            if not run.faults.tail_loss:
                verdict.violations += history.violations
            verdict.violations += ordered(history.accepted)
            verdict.violations += decided_once(history.accepted) + no_refusal(history.accepted)
            if not run.faults.tail_loss:
                verdict.violations += undecided(aggregate, history, commands)
    places = [one for (name, _), h in histories.items() if name == "places" for one in h.accepted]
    tally = [one for (name, _), h in histories.items() if name == "tally" for one in h.accepted]
    verdict.violations += within_limit(places) + run.died + run.trims
    verdict.violations += _views(run, histories)
    if not run.faults.tail_loss:
        verdict.violations += [f"false stop: {stop}" for stop in run.named]
        verdict.violations += only_accepted(run.settled, histories)
        verdict.violations += reactions_complete(places, tally)
        if not run.finished:
            verdict.violations.append("progress: not everything was decided after faults stopped")
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
            if run.faults.tail_loss:
                found += no_silent_loss(who, history, seen)
            else:
                found += same_view(who, history, seen, name == "prompt")
    return found


def one_seed(seed: int, trace: bool = False) -> tuple[Verdict, Run]:
    run = play(seed, trace)
    return check(run), run


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tunery.runtime.testing.sim", description=__doc__
    )
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds to play")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--seed", type=int, help="play this one only")
    parser.add_argument("--trace", action="store_true", help="print what happened, line by line")
    given = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    first, count = (given.seed, 1) if given.seed is not None else (given.first, given.seeds)
    report = _play_all(range(first, first + count), given.trace)
    print(json.dumps(report))
    return 1 if report["violations"] else 0


def _play_all(seeds: range, trace: bool) -> dict[str, Any]:
    begun = time.monotonic()
    bad: list[Verdict] = []
    totals: dict[str, int] = {}
    commands = claims = void = 0
    for done, seed in enumerate(seeds, 1):
        verdict, run = one_seed(seed, trace)
        if trace:
            print(*run.trace, *run.named, sep="\n", file=sys.stderr)
        if verdict.violations:
            bad.append(verdict)
            print(f"seed {seed}: {verdict.violations[0]}", file=sys.stderr)
        commands, claims = commands + verdict.commands, claims + verdict.claims
        void += verdict.void
        for kind, number in verdict.faults.items():
            totals[kind] = totals.get(kind, 0) + number
        if done % PROGRESS_EVERY == 0:
            rate = done / (time.monotonic() - begun)
            print(f"{done} of {len(seeds)} seeds, {rate:.1f}/s", file=sys.stderr)
    return {
        "seeds": len(seeds),
        "violations": len(bad),
        "failing": [{"seed": one.seed, "violations": one.violations[:3]} for one in bad[:20]],
        "commands": commands,
        "claims": claims,
        "voided": void,
        "faults": dict(sorted(totals.items())),
        "runs_per_s": round(len(seeds) / (time.monotonic() - begun), 1),
    }


if __name__ == "__main__":
    sys.exit(main())
