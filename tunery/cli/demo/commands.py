"""Commands that the demo runs as a user would."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from tunery.cli.demo.context import DemoContext
from tunery.cli.demo.polling import DeadlineExceeded

COMMAND_S_MAX: Final = 180


async def tunery(
    context: DemoContext,
    *words: str,
    codes: Sequence[int] = (0,),
    environment: Mapping[str, str] | None = None,
    seconds_max: float = COMMAND_S_MAX,
) -> str:
    """Run a command of ours as a user would; returns what it printed.

    Raises DeadlineExceeded when it ends with another exit code than `codes`.
    """
    folder = str(context.stack.folders.root)
    status, output = await run(
        (sys.executable, "-m", "tunery.cli.main", *words, "--data-dir", folder),
        environment,
        seconds_max,
    )
    if status not in codes:
        raise DeadlineExceeded(f"`tunery {' '.join(words)}` ended with {status}: {output[-800:]}")
    return output


async def run(
    argv: Sequence[str],
    environment: Mapping[str, str] | None = None,
    seconds_max: float = COMMAND_S_MAX,
) -> tuple[int, str]:
    """The exit status of a command, and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment
    )
    out, errors = await asyncio.wait_for(process.communicate(), seconds_max)
    status = process.returncode or 0
    return status, (out if status == 0 or out.strip() else errors).decode("utf-8", "replace")
