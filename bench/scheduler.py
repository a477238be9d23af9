"""Measures what the scheduler's planner decides, and how fast, and compares both to the anchors.

    python -m bench.scheduler [--json] [--traces FOLDER]

Two traces of the Philly cluster on 41 nodes with 8 slots, with noisy estimates, a checkpoint every
30 minutes and 3 minutes a preemption. The folder (or $TUNERY_TRACES) has `anchors.json` and
`scenarios/`; without it only the speed is measured: 10,000 placements wait for 1,000 full nodes.
The speed is that of the planner alone, in time of the processor.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Any, Final

from tunery.cli.simulate.outcome import outcome
from tunery.cli.simulate.policies import POLICIES
from tunery.cli.simulate.trace_player import play
from tunery.cli.simulate.traces import read_trace
from tunery.plan.scheduling.plan import plan
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.policy import PRODUCT
from tunery.plan.scheduling.requests import (
    PlanNode,
    Request,
    RequestClass,
    granted,
)

NODES, SLOTS = 41, 8
SCENARIOS: Final = {"C": "philly_C_2w_load61.csv.gz", "B": "philly_B_2w_load80.csv.gz"}
# Names of the anchors for our names of the policies.
ANCHORED: Final = {"fifo": "fifo", "skip-ahead": "bestfit", "easy": "easy", "sjf": "sjf"}
WAITING, POOL_NODES, DECISIONS = 10_000, 1_000, 2_000
MINUTE_MS: Final = 60_000


def scenarios(folder: Path) -> dict[str, Any]:
    """The product's policy on each scenario, and what baselines are off their anchors by."""
    anchors = json.loads((folder / "anchors.json").read_text())["untiered"]
    figures: dict[str, Any] = {}
    for name, file in SCENARIOS.items():
        jobs = read_trace(folder / "scenarios" / file)
        began = perf_counter_ns()
        played = play(jobs, PRODUCT, NODES, SLOTS)
        figures[name] = outcome(played, NODES * SLOTS)
        figures[name]["seconds"] = round((perf_counter_ns() - began) / 1e9, 1)
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


def _off(figures: dict[str, float | int], anchor: float) -> float:
    return round(100 * abs(figures["mean_wait_h"] - anchor) / anchor, 2)


def speed() -> dict[str, float]:
    """Leases end one by one in a full pool; after each the planner decides who follows."""
    state = PlanningState(
        [PlanNode(f"n{number:04d}", SLOTS, "cuda", 0) for number in range(POOL_NODES)], PRODUCT
    )
    for number in range(WAITING + POOL_NODES * SLOTS + DECISIONS):
        request = _request(number)
        if number < POOL_NODES * SLOTS:
            seats = ((f"n{number // SLOTS:04d}", 1),)
            state.start(granted(request, seats, 0, request.job_id))
        elif number < POOL_NODES * SLOTS + WAITING:
            state.queue.add(request)
    took_ns = []
    for number in range(DECISIONS):
        at = 10 * MINUTE_MS + number
        state.end(f"j{number:06d}")
        state.queue.add(_request(POOL_NODES * SLOTS + WAITING + number))
        began = process_time_ns()
        planned = plan(state, at)
        took_ns.append(process_time_ns() - began)
        for start in planned.starts:
            request = state.leave_queue(start.request.job_id)
            state.start(granted(request, start.seats, at, request.job_id))
    took_ns.sort()
    return {
        "decision_p50_ms": round(took_ns[len(took_ns) // 2] / 1e6, 3),
        "decision_p99_ms": round(took_ns[len(took_ns) * 99 // 100] / 1e6, 3),
        "decisions_per_s": round(1e9 * len(took_ns) / sum(took_ns)),
    }


def _request(number: int) -> Request:
    """Mostly single slots, some gangs, of a hundred tenants in three lanes."""
    slots = (1, 1, 1, 1, 1, 1, 2, 4, 8, 16)[number % 10] if number >= POOL_NODES * SLOTS else 1
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


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--traces", type=Path, default=os.environ.get("TUNERY_TRACES"))
    arguments = parser.parse_args()
    figures: dict[str, Any] = dict(speed())
    if arguments.traces is None:
        print("no traces: --traces FOLDER or $TUNERY_TRACES", file=sys.stderr)
    else:
        figures |= scenarios(Path(arguments.traces))
    if arguments.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:16} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
