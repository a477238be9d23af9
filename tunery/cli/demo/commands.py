"""Commands that the demo runs as a user would."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Final

from tunery.cli.demo.context import DemoContext
from tunery.cli.demo.polling import DeadlineExceeded

COMMAND_S_MAX: Final = 180


async def tunery(context: DemoContext, *words: str, codes: Sequence[int] = (0,)) -> str:
    """Run a command of ours as a user would; returns what it printed.

    Raises DeadlineExceeded when it ends with another exit code than `codes`.
    """
    folder = str(context.stack.folders.root)
    status, output = await run(
        (sys.executable, "-m", "tunery.cli.main", *words, "--data-dir", folder)
    )
    if status not in codes:
        raise DeadlineExceeded(f"`tunery {' '.join(words)}` ended with {status}: {output[-800:]}")
    return output


async def run(argv: Sequence[str]) -> tuple[int, str]:
    """The exit status of a command, and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, errors = await asyncio.wait_for(process.communicate(), COMMAND_S_MAX)
    status = process.returncode or 0
    return status, (out if status == 0 or out.strip() else errors).decode("utf-8", "replace")
