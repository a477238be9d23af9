"""Measures what the scheduler's planner decides, and how fast, and compares both to the anchors.

    python -m bench.scheduler [--json] [--traces FOLDER]
    python -m bench.scheduler --waits
    python -m bench.scheduler --jobs 1000000

Two traces of the Philly cluster on 41 nodes with 8 slots, with noisy estimates, a checkpoint every
30 minutes and 3 minutes a preemption. The folder (or $TUNERY_TRACES) has `anchors.json` and
`scenarios/`; without it only the rest is measured, in time of the processor:

* with `--waits` only that: a made trace in which whole nodes are in demand (`whole_nodes`), on 16
  nodes, and the longest waits of each lane and size, as multiples of EASY's of that size: of one
  draw, and pooled, as the longest of six draws with ours and with EASY. The goal of each is half as
  much again as EASY's, or what its lane is promised where that is longer;
* the scheduler's whole decision while 10,000 placements wait for 1,000 or 2,000 full nodes;
* the planner alone, as part of it;
* the forecast of 1,000 jobs that wait for 40 nodes, as readers make it;
* what the scheduler's memory grows by while jobs come, work, end and are forgotten; with `--jobs`
  only that, for so many.
"""

import argparse
import gc
import json
import os
import resource
import sys
import tracemalloc
from collections.abc import Sequence
from math import log
from pathlib import Path
from random import Random
from time import process_time_ns
from typing import Any, Final

from bench.full_pool import FullPool
from schemas.units import HOUR_MS
from tunery.cli.simulate.outcome import PROMISES, outcome, waits_by_size
from tunery.cli.simulate.policies import POLICIES
from tunery.cli.simulate.trace_jobs import TraceJob
from tunery.cli.simulate.trace_player import Played, play
from tunery.cli.simulate.traces import read_trace
from tunery.plan.scheduling.forecast import QUANTILES, forecast
from tunery.plan.scheduling.plan import plan
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.policy import PRODUCT
from tunery.plan.scheduling.queue import in_order
from tunery.plan.scheduling.requests import LANES, PlanNode, Request, RequestClass, granted

# A trace in which whole nodes are in demand, which a planner that favours short jobs starves.
#
# Of the public traces 4 % of the jobs need whole nodes. Here a sixth do, and have most of the GPU
# time, beside jobs of one slot that run for days and keep every node in use.

SIZES: Final = {1: 70, 2: 7, 4: 7, 8: 12, 16: 3, 32: 1}  # slots → share of the jobs
LANE_SHARES: Final = (10, 40, 50)
TENANTS: Final = 12
MEDIAN_H, SPREAD, LONGEST_H = 0.4, 1.8, 60.0
BURST_SHARE, BURST_JOBS = 0.04, 30  # how many submissions are bursts of one tenant, and how large
ESTIMATE_SHIFT, ESTIMATE_SPREAD = 0.5, 0.8  # estimates are 1.65 times too long at the median


def whole_node_trace(seed: int, slots: int, hours: int, load: float) -> list[TraceJob]:
    """Return jobs that are submitted within so many hours and need that share of the slots.

    slots: slots of the whole pool. Equal seeds give equal jobs.
    """
    random = Random(seed)  # noqa: S311  # the same jobs each time
    wanted_ms = int(slots * hours * HOUR_MS * load)
    drawn: list[tuple[int, int, int, int, int]] = []
    needed_ms = 0
    while needed_ms < wanted_ms:
        is_burst = random.random() < BURST_SHARE
        at = random.randrange(hours * HOUR_MS)
        tenant = min(int(random.paretovariate(1.0)), TENANTS)
        for _ in range(random.randint(2, BURST_JOBS) if is_burst else 1):
            hours_long = min(LONGEST_H, random.lognormvariate(log(MEDIAN_H), SPREAD))
            duration_ms = max(10_000, int(hours_long * HOUR_MS))
            size = random.choices([*SIZES], [*SIZES.values()])[0]
            lane = random.choices(range(len(LANE_SHARES)), LANE_SHARES)[0]
            drawn.append((at, duration_ms, size, lane, tenant))
            needed_ms += duration_ms * size
    return [
        TraceJob(
            job_id=f"{number:08d}",
            submitted_at=at,
            duration_ms=duration_ms,
            estimate_ms=max(
                1, int(duration_ms * random.lognormvariate(ESTIMATE_SHIFT, ESTIMATE_SPREAD))
            ),
            slots=size,
            tenant=f"t{tenant:02d}",
            lane=lane,
        )
        for number, (at, duration_ms, size, lane, tenant) in enumerate(sorted(drawn))
    ]


NODES, SLOTS = 41, 8
SCENARIOS: Final = {"C": "philly_C_2w_load61.csv.gz", "B": "philly_B_2w_load80.csv.gz"}
# Names of the anchors for our names of the policies.
ANCHORED: Final = {"fifo": "fifo", "skip-ahead": "bestfit", "easy": "easy", "sjf": "sjf"}
WAITING, POOL_NODES, DECISIONS = 10_000, 1_000, 2_000
WHOLE_SEED, WHOLE_NODES, WHOLE_HOURS, WHOLE_LOAD = 0, 16, 240, 0.85
WHOLE_DRAWS = 6
FORECAST_JOBS, FORECAST_NODES, HEAP_JOBS = 1_000, 40, 4_000
MINUTE_MS: Final = 60_000
OF_EASY_MAX: Final = 1.5  # the goal of the longest wait of a lane and size, past its promise


def scenarios(folder: Path) -> dict[str, Any]:
    """The product's policy on each scenario, and what baselines are off their anchors by."""
    anchors = json.loads((folder / "anchors.json").read_text())["untiered"]
    figures: dict[str, Any] = {}
    for name, file in SCENARIOS.items():
        jobs = read_trace(folder / "scenarios" / file)
        began = process_time_ns()
        played = play(jobs, PRODUCT, NODES, SLOTS)
        figures[name] = outcome(played, NODES * SLOTS)
        figures[name]["seconds"] = round((process_time_ns() - began) / 1e9, 1)
        figures[name] |= beside_easy([(played, jobs)], NODES)
        expected = {
            row["policy"]: row["avg_wait_h"]
            for row in next(rows for key, rows in anchors.items() if key.startswith(name))
            if row["est"] == "exact"
        }
        figures[name]["off_anchor_pct"] = {
            policy: _off(
                outcome(play(jobs, POLICIES[policy], NODES, SLOTS, exact=True), NODES * SLOTS),
                expected[anchor],
            )
            for policy, anchor in ANCHORED.items()
        }
    return figures


def beside_easy(draws: Sequence[tuple[Played, Sequence[TraceJob]]], nodes: int) -> dict[str, float]:
    """The longest wait of each lane and size, as a multiple of EASY's with the same estimates.

    Of several draws of a trace it is the longest of all of them, with either policy: of few jobs
    the longest wait of one draw is a matter of luck.
    EASY has no lanes, so that its longest wait of a size is that of all of them; where none has
    waited for a minute there, a minute is what is compared with. A wait inside of the promise of
    its lane is past no goal.
    """
    longest, easys = dict[tuple[int, int], int](), dict[int, int]()
    for played, jobs in draws:
        for (_, size), waits in waits_by_size(play(jobs, POLICIES["easy"], nodes, SLOTS)).items():
            easys[size] = max(easys.get(size, MINUTE_MS), waits[-1])
        for lane_size, waits in waits_by_size(played).items():
            longest[lane_size] = max(longest.get(lane_size, 0), waits[-1])
    figures: dict[str, float] = {"lanes_and_sizes_past_goal": 0}
    for (lane, size), wait_ms in sorted(longest.items()):
        _, promise_ms = PROMISES[LANES[lane]]
        of_easy = wait_ms / easys[size]
        figures[f"{LANES[lane]}_from_{size}_slots_max_of_easy"] = round(of_easy, 2)
        figures["lanes_and_sizes_past_goal"] += of_easy > OF_EASY_MAX and wait_ms > promise_ms
    return figures


def whole_nodes() -> dict[str, float]:
    """The product's policy where whole nodes are in demand, compared with EASY."""
    played, jobs = _whole_draw(WHOLE_SEED)
    return outcome(played, WHOLE_NODES * SLOTS) | beside_easy([(played, jobs)], WHOLE_NODES)


def whole_nodes_pooled() -> dict[str, float]:
    """The longest waits of all draws of that trace, as multiples of EASY's."""
    seeds = range(WHOLE_SEED, WHOLE_SEED + WHOLE_DRAWS)
    return beside_easy([_whole_draw(seed) for seed in seeds], WHOLE_NODES)


def _whole_draw(seed: int) -> tuple[Played, Sequence[TraceJob]]:
    jobs = whole_node_trace(seed, WHOLE_NODES * SLOTS, WHOLE_HOURS, WHOLE_LOAD)
    return play(jobs, PRODUCT, WHOLE_NODES, SLOTS), jobs


def _off(figures: dict[str, float | int], anchor: float) -> float:
    return round(100 * abs(figures["mean_wait_h"] - anchor) / anchor, 2)


def decision_speed(nodes: int) -> dict[str, float]:
    """Leases end one by one in a full pool: exits, freed slots with grants, jobs that follow."""
    pool = FullPool(nodes)
    for number in range(WAITING):
        pool.wait(number)
    took_ns = []
    for number in range(WAITING, WAITING + DECISIONS // 4):
        pool.at += 1
        pool.describe(number)
        for command in (*pool.next_end(), pool.request(number)):
            began = process_time_ns()
            events = pool.decide(command)
            took_ns.append(process_time_ns() - began)
            pool.fold(events)
    return _quantiles(took_ns)


def heap_growth(jobs: int) -> dict[str, float]:
    """Measure the memory per job: bytes in use after so many jobs, less those after half."""
    pool, used = FullPool(1), [0, 0]
    tracemalloc.start()
    for number in range(jobs):
        play_job(pool, number)
        if number + 1 in (jobs // 2, jobs):
            gc.collect()
            used[(number + 1) // jobs] = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return {"jobs": jobs, "bytes_a_job": round((used[1] - used[0]) / (jobs - jobs // 2), 1)}


def heap_of_many(jobs: int) -> dict[str, float]:
    """Measure the growth of the process from a tenth of so many jobs to all of them.

    Allocations are not traced, so that a million jobs take a quarter of an hour.
    """
    pool, marks = FullPool(1), list[tuple[int, int]]()
    for number in range(jobs):
        play_job(pool, number)
        if (number + 1) * 10 % jobs == 0:
            gc.collect()
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            marks.append((sys.getallocatedblocks(), peak))
            print(f"{number + 1} jobs: {marks[-1][0]} blocks, peak {peak} kB", file=sys.stderr)
    (blocks, peak), (blocks_now, peak_now) = marks[0], marks[-1]
    return {
        "jobs": jobs,
        "blocks_first": blocks,
        "blocks_more": blocks_now - blocks,
        "peak_first_kb": peak,
        "peak_more_kb": peak_now - peak,
    }


def play_job(pool: FullPool, number: int) -> None:
    """A job comes, the oldest one ends, and the pool forgets that one."""
    pool.at += MINUTE_MS
    pool.describe(number)
    pool.send(pool.request(number, 1))
    for command in pool.next_end():
        pool.send(command)


def forecast_speed() -> dict[str, float]:
    """The queue of 1,000 jobs on 40 full nodes is played through, once for each estimate."""
    state = _full(FORECAST_NODES, FORECAST_JOBS)
    planned = plan(state, 0)
    order = [
        request
        for lane in range(len(LANES))
        for request in in_order(state.queue, lane, {}, frozenset())
    ]
    took_ns = []
    for quantile in QUANTILES * 5:
        began = process_time_ns()
        forecast(state, planned, order, 0, quantile)
        took_ns.append(process_time_ns() - began)
    return {"p50_ms": _quantiles(took_ns)["p50_ms"]}


def planner_speed() -> dict[str, float]:
    """Leases end one by one in a full pool; after each the planner decides who follows."""
    state = _full(POOL_NODES, WAITING)
    took_ns = []
    for number in range(DECISIONS):
        at = 10 * MINUTE_MS + number
        state.end(f"j{number:06d}")
        state.queue.add(_request(POOL_NODES * SLOTS + WAITING + number, _slots(number)))
        began = process_time_ns()
        planned = plan(state, at)
        took_ns.append(process_time_ns() - began)
        for start in planned.starts:
            request = state.leave_queue(start.request.job_id)
            state.start(granted(request, start.seats, at, request.job_id))
    return _quantiles(took_ns)


def _quantiles(took_ns: list[int]) -> dict[str, float]:
    took_ns.sort()
    return {
        "p50_ms": round(took_ns[len(took_ns) // 2] / 1e6, 3),
        "p99_ms": round(took_ns[len(took_ns) * 99 // 100] / 1e6, 3),
        "per_s": round(1e9 * len(took_ns) / sum(took_ns)),
    }


def _full(nodes: int, waiting: int) -> PlanningState:
    """Nodes full of leases with one slot each, and so many requests that wait."""
    state = PlanningState(
        [PlanNode(f"n{number:04d}", SLOTS, "cuda", 0) for number in range(nodes)], PRODUCT
    )
    for number in range(nodes * SLOTS):
        request = _request(number, 1)
        seats = ((f"n{number // SLOTS:04d}", 1),)
        state.start(granted(request, seats, 0, request.job_id))
    for number in range(nodes * SLOTS, nodes * SLOTS + waiting):
        state.queue.add(_request(number, _slots(number)))
    return state


def _slots(number: int) -> int:
    """Mostly single slots, some gangs."""
    return (1, 1, 1, 1, 1, 1, 2, 4, 8, 16)[number % 10]


def _request(number: int, slots: int) -> Request:
    """Return a request of one of a hundred tenants in three lanes."""
    hours_ms = (1 + number % 20) * 60 * MINUTE_MS
    return Request(
        job_id=f"j{number:06d}",
        tenant=f"t{number % 97:02d}",
        lane=number % 3,
        needs=RequestClass(slots, "cuda", 0),
        submitted_at=number,
        p50_ms=hours_ms,
        p90_ms=2 * hours_ms,
    )


def measure_speed() -> dict[str, float]:
    """All that needs no traces."""
    decision, large = decision_speed(POOL_NODES), decision_speed(2 * POOL_NODES)
    planner = planner_speed()
    return {
        "decision_p50_ms": decision["p50_ms"],
        "decision_p99_ms": decision["p99_ms"],
        "decisions_per_s": decision["per_s"],
        "decision_of_2000_nodes_p50_ms": large["p50_ms"],
        "planner_p50_ms": planner["p50_ms"],
        "planner_p99_ms": planner["p99_ms"],
        "forecast_of_1000_ms": forecast_speed()["p50_ms"],
        "heap_bytes_a_job": heap_growth(HEAP_JOBS)["bytes_a_job"],
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--waits", action="store_true", help="only this: whole nodes in demand")
    parser.add_argument("--jobs", type=int, help="only this: memory after so many jobs")
    parser.add_argument("--traces", type=Path, default=os.environ.get("TUNERY_TRACES"))
    arguments = parser.parse_args()
    if arguments.jobs:
        print(json.dumps(heap_of_many(arguments.jobs)))
        return 0
    figures: dict[str, Any] = {
        "whole_nodes": whole_nodes(),
        "whole_nodes_pooled": whole_nodes_pooled(),
    }
    if not arguments.waits:
        figures |= measure_speed()
        if arguments.traces is None:
            print("no traces: --traces FOLDER or $TUNERY_TRACES", file=sys.stderr)
        else:
            figures |= scenarios(Path(arguments.traces))
    if arguments.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            rows = value.items() if isinstance(value, dict) else [("", value)]
            for key, figure in rows:
                print(f"{name:16} {key:45} {figure}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
