"""Runs `tunery` as its user does, in a process of its own."""

import asyncio
import os
import sys
from pathlib import Path


async def run_tunery(data_dir: Path, *words: str, code: int = 0) -> tuple[bytes, bytes]:
    """Output and errors of a command that ends with `code`, without settings of ours."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tunery.cli.main", *words),
        *("--data-dir", str(data_dir)),
        env={name: value for name, value in os.environ.items() if not name.startswith("TUNERY_")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    assert process.returncode == code, (out + errors).decode()
    return out, errors
