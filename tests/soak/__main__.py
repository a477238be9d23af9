"""`python -m tests.soak --rounds 50 --seed 1 --json`: real processes, a real broker, real kills."""

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

from tests.soak.rounds import draw_rounds
from tests.soak.run import say, soak


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="how many faults (default 50)")
    parser.add_argument("--first", type=int, default=1, help="of the rounds of this seed")
    parser.add_argument("--seed", type=int, default=1, help="draws the rounds and the commands")
    parser.add_argument("--rate", type=float, default=60.0, help="requests a second (default 60)")
    parser.add_argument("--json", action="store_true", help="one line of JSON on standard output")
    parser.add_argument("--keep", type=Path, help="an empty folder for diaries and logs")
    options = parser.parse_args()
    if options.rounds < 0 or options.first < 1 or options.rate <= 0:
        parser.error("--rounds must be 0 or more, --first 1 or more, and --rate above 0")
    if options.keep is not None and options.keep.exists() and any(options.keep.iterdir()):
        parser.error(f"--keep: {options.keep} is not empty; its diaries would count as this soak's")
    return options


async def until_stopped(options: argparse.Namespace) -> dict[str, Any]:
    """End on SIGTERM as on Ctrl-C, so that no process is left running."""
    rounds = draw_rounds(options.first + options.rounds - 1, options.seed)[options.first - 1 :]
    running = asyncio.ensure_future(soak(rounds, options.seed, options.rate, say, options.keep))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    return await running


def main() -> int:
    options = parse_arguments()
    try:
        result = asyncio.run(until_stopped(options))
    except (asyncio.CancelledError, KeyboardInterrupt):
        say("stopped before the check")
        return 1
    print(json.dumps(result, indent=None if options.json else 2))
    return 1 if result["problems_count"] else 0


if __name__ == "__main__":
    sys.exit(main())
