"""Measures how long it takes to rebuild all state from the log, and compares it to the unit.

    python -m bench.rebuild [--json] [--jobs 1000]

A simulation with failing machines runs the jobs through the production deciders on virtual time;
its records go into a real Kafka, byte for byte. Services build their rows from them; then the whole
PostgreSQL database is dropped, then Valkey is lost. Each time jobs, limits, leases, slices and
invoices are compared with the simulator's own books, and `replay --verify` has to agree. A webhook
receiver counts what arrives.
"""

import argparse
import asyncio
import json
import sys
from typing import Any, Final

from bench.measures import data_folder
from tests.e2e.rebuilding import Rebuilt, rebuild

JOBS: Final = 1_000


def report(rebuilt: Rebuilt) -> dict[str, Any]:
    return {
        "jobs": rebuilt.jobs,
        "records": rebuilt.records,
        "seconds": {stage: round(seconds, 1) for stage, seconds in rebuilt.seconds.items()},
        "webhooks": rebuilt.webhooks,
        "differences": {stage: texts for stage, texts in rebuilt.differences.items() if texts},
        "equal": rebuilt.equal,
    }


def main() -> int:
    """Rebuild and print. Exit code 1 when something differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"default: {JOBS}")
    arguments = parser.parse_args()
    with data_folder() as folder:
        rebuilt = asyncio.run(
            rebuild(arguments.jobs, folder, lambda line: print(line, file=sys.stderr))
        )
    figures = report(rebuilt)
    if arguments.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:12} {value}")
    return 0 if rebuilt.equal else 1


if __name__ == "__main__":
    sys.exit(main())
