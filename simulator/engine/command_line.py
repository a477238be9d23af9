"""Plays seeds of scenarios on all cores; progress on stderr, one JSON object last on stdout.

--seeds N --first F [--processes P]      many seeds, each of every scenario
--seed N [--trace] [--plan JSON]         scenario, with its timeline; or its own plan
"""

import argparse
import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct, structs

from simulator.engine.verdict import Scenario, Verdict

# Shrinks a failing plan: removes one thing after the other while the plan still fails.

PLAYS_MAX: Final = 300

P = TypeVar("P", bound=Struct)


def smaller(plan: P) -> Iterator[P]:
    """Plans with one thing less: a number at 0 or half, a flag off, a tuple's half or element.

    Nested structs are made smaller likewise. `seed` stays: it decides what the rest means.
    """
    for name in plan.__struct_fields__:
        if name != "seed":
            for value in _less(getattr(plan, name)):
                yield structs.replace(plan, **{name: value})


def _less(value: Any) -> Iterator[Any]:
    match value:
        case bool():
            yield from (False,) if value else ()
        case int():
            yield from sorted({0, value // 2} - {value})
        case tuple():
            if len(value) > 2:
                yield value[: len(value) // 2]
                yield value[len(value) // 2 :]
            for index in range(len(value)):
                yield value[:index] + value[index + 1 :]
        case Struct():
            yield from smaller(value)
        case _:
            pass


def shrink(scenario: Scenario, plan: P, say: Callable[[str], None]) -> P:
    """The smallest plan found that violates one of the invariants that `plan` violates."""
    wanted = scenario.play(plan).violated
    plays = 0
    smallest: P | None = plan
    while smallest is not None:
        plan, smallest = smallest, None
        for candidate in smaller(plan):
            if plays == PLAYS_MAX:
                say(f"{scenario.name} seed {plan.seed}: not smaller within {plays} plays")  # type: ignore[attr-defined]  # every plan has one
                return plan
            plays += 1
            if scenario.play(candidate).violated & wanted:
                smallest = candidate
                break
    return plan


PROGRESS_S: Final = 5
CHUNK: Final = 4
FAILING_SHOWN_MAX: Final = 20
SHRUNK_MAX: Final = 3  # the first failing seeds are shrunk, the others are only listed


@dataclass(frozen=True)
class SeedJob:
    """One seed of one scenario."""

    scenario: Scenario
    seed: int

    def play(self) -> Verdict:
        try:
            return self.scenario.play(self.scenario.plan(self.seed))
        except Exception as error:  # any error must be reported with its seed
            return Verdict([f"raised: {error!r}"])


@dataclass
class SeedReport:
    """Sums over many verdicts."""

    seeds: int
    begun: float = field(default_factory=time.monotonic)
    played: int = 0
    voided: int = 0
    failing: list[tuple[SeedJob, Verdict]] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, job: SeedJob, verdict: Verdict) -> None:
        self.played += 1
        self.voided += verdict.voided
        self.faults.update(verdict.faults)
        self.counts.update(verdict.counts)
        self.kinds.update(verdict.kinds)
        if verdict.violations:
            self.failing.append((job, verdict))
            _say(f"{job.scenario.name} seed {job.seed}: {verdict.violations[0]}")

    def as_json(self, smallest: dict[SeedJob, Any]) -> dict[str, Any]:
        """Return the JSON report. smallest: shrunken plans of the first failing seeds."""
        failing = sorted(
            self.failing, key=lambda scenario: (scenario[0].seed, scenario[0].scenario.name)
        )
        return {
            "seeds": self.seeds,
            "violations": len(failing),
            "voided": self.voided,
            "runs_per_s": round(self.played / (time.monotonic() - self.begun), 1),
            "faults": dict(sorted(self.faults.items())),
            "counts": {"runs": self.played, **dict(sorted(self.counts.items()))},
            "failing": [
                {
                    "scenario": job.scenario.name,
                    "seed": job.seed,
                    "violations": verdict.violations[:3],
                    "plan": msgspec.to_builtins(smallest.get(job)),
                }
                for job, verdict in failing[:FAILING_SHOWN_MAX]
            ],
        }


def main(
    arguments: Sequence[str] | None,
    scenarios: Sequence[Scenario],
    table: Callable[[Mapping[str, int]], Iterable[str]] | None = None,
) -> int:
    """The command line. Exit status 1 when an invariant is violated.

    table: lines that say which kinds of commands and events the runs have met.
    """
    parser = _parser(scenarios)
    options = parser.parse_args(arguments)
    chosen = [scenario for scenario in scenarios if options.scenario in (None, scenario.name)]
    if options.plan is not None and len(chosen) > 1:
        parser.error("--plan: say whose plan it is, with --scenario NAME")
    with silence():
        if options.seed is not None or options.plan is not None:
            try:
                report = _play_one(chosen, options)
            except msgspec.DecodeError as error:
                parser.error(f"--plan: {error}")
            smallest: dict[SeedJob, Any] = {}
        else:
            seeds = range(options.first, options.first + options.seeds)
            report = play_all(chosen, seeds, options.processes)
            smallest = _shrink_first(report)
    if options.coverage and table is not None:
        print("\n".join(table(report.kinds)))
    print(json.dumps(report.as_json(smallest)))
    return 1 if report.failing else 0


def _parser(scenarios: Sequence[Scenario]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make sim", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=_positive, default=300, help="how many seeds to play")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--seed", type=int, help="play this scenario only")
    parser.add_argument("--trace", action="store_true", help="print what happened, line by line")
    parser.add_argument("--plan", help="play this plan (as a failing run prints it)")
    parser.add_argument(
        "--coverage", action="store_true", help="print which kinds of messages the runs have met"
    )
    parser.add_argument("--scenario", choices=[scenario.name for scenario in scenarios])
    parser.add_argument(
        "--processes",
        type=_positive,
        default=os.cpu_count() or 1,
        help="default: scenario per core",
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not 1 or more")
    return number


@contextmanager
def silence() -> Iterator[None]:
    """Hosts log every stand-down; formatting thousands of them costs more than the runs."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def play_all(scenarios: Sequence[Scenario], seeds: Iterable[int], processes: int) -> SeedReport:
    """Every seed of every scenario, in `processes` fresh processes."""
    jobs = [SeedJob(scenario, seed) for seed in seeds for scenario in scenarios]
    report, said = SeedReport(len(jobs) // len(scenarios)), time.monotonic()
    with get_context("spawn").Pool(processes, initializer=_start_worker) as pool:
        for job, verdict in pool.imap_unordered(_play_job, jobs, CHUNK):
            report.add(job, verdict)
            if time.monotonic() - said >= PROGRESS_S:
                said = time.monotonic()
                rate = report.played / (said - report.begun)
                _say(f"{report.played} of {len(jobs)} runs, {rate:.1f}/s")
    return report


def _start_worker() -> None:
    logging.disable(logging.CRITICAL)


def _play_job(job: SeedJob) -> tuple[SeedJob, Verdict]:
    return job, job.play()


def _shrink_first(report: SeedReport) -> dict[SeedJob, Any]:
    """The smallest plans of the first failing jobs."""
    smallest: dict[SeedJob, Any] = {}
    for job, verdict in sorted(report.failing, key=lambda scenario: scenario[0].seed)[:SHRUNK_MAX]:
        if verdict.violated != {"raised"}:
            plan = shrink(job.scenario, job.scenario.plan(job.seed), _say)
            smallest[job] = plan
            _say(f"{job.scenario.name} seed {job.seed} fails with less: {_json(plan)}")
    return smallest


def _play_one(scenarios: Sequence[Scenario], options: argparse.Namespace) -> SeedReport:
    """Play one seed or plan. Raises msgspec.DecodeError for an invalid plan."""
    report = SeedReport(1)
    for scenario in scenarios:
        plan = scenario.plan(options.seed or 0)
        if options.plan is not None:
            plan = msgspec.json.decode(options.plan, type=type(plan))
        _say(f"{scenario.name}: {_json(plan)}")
        verdict = scenario.play(plan, options.trace)
        for line in (*verdict.trace, *verdict.violations[1:]):
            _say(line)
        report.add(SeedJob(scenario, plan.seed), verdict)
    return report


def _json(plan: Any) -> str:
    return msgspec.json.encode(plan).decode()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
