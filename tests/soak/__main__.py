"""`python -m tests.soak --rounds 50 --seed 1 --json`: real processes, a real broker, real kills."""

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

from tests.soak.rounds import drawn
from tests.soak.run import say, soak


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="how many faults (default 50)")
    parser.add_argument("--first", type=int, default=1, help="of the rounds of this seed")
    parser.add_argument("--seed", type=int, default=1, help="draws the rounds and the commands")
    parser.add_argument("--rate", type=float, default=60.0, help="requests a second (default 60)")
    parser.add_argument("--json", action="store_true", help="one line of JSON on standard output")
    parser.add_argument("--keep", type=Path, help="an empty folder for diaries and logs")
    given = parser.parse_args()
    if given.rounds < 0 or given.first < 1 or given.rate <= 0:
        parser.error("--rounds must be 0 or more, --first 1 or more, and --rate above 0")
    if given.keep is not None and given.keep.exists() and any(given.keep.iterdir()):
        parser.error(f"--keep: {given.keep} is not empty; its diaries would count as this soak's")
    return given


async def until_stopped(given: argparse.Namespace) -> dict[str, Any]:
    """A SIGTERM ends it as Ctrl-C does: no process is left behind."""
    rounds = drawn(given.first + given.rounds - 1, given.seed)[given.first - 1 :]
    running = asyncio.ensure_future(soak(rounds, given.seed, given.rate, say, given.keep))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    return await running


def main() -> int:
    given = parsed()
    try:
        result = asyncio.run(until_stopped(given))
    except (asyncio.CancelledError, KeyboardInterrupt):
        say("stopped before the check")
        return 1
    print(json.dumps(result, indent=None if given.json else 2))
    return 1 if result["problems_count"] else 0


if __name__ == "__main__":
    sys.exit(main())
