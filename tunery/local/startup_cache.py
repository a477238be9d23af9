"""Writes the cache with which Java starts Kafka in half the time: its classes, read and linked.

It is Java's ahead-of-time cache (JEP 483 and 514), written by a broker that gets its accounts and
topics in a throw-away folder and ends. Java starts without a cache that does not fit it.
"""

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from tunery.local import kafka, ports, secrets
from tunery.local.errors import LocalError
from tunery.local.events import Event
from tunery.local.paths import DataDir
from tunery.local.supervisor import Supervisor

STOP_MS_MAX: Final = 120_000  # Java writes the cache when the broker has ended


def create() -> Path:
    """Write the cache, and remove those of other versions. Returns its path. Raises LocalError."""
    target = kafka.startup_cache()
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".startup-") as scratch:
        part = Path(scratch) / target.name
        asyncio.run(_record(DataDir(Path(scratch) / "stack"), part))
        if not part.is_file():
            raise LocalError(f"Java wrote no cache at {part}", "free some disk (0.1 GB)")
        for other in target.parent.glob(f"*{target.suffix}"):
            other.unlink(missing_ok=True)
        part.replace(target)
    return target


async def _record(folders: DataDir, cache: Path) -> None:
    folders.create()
    keys = secrets.load_or_create(folders.secrets)
    port = ports.find_free(set())
    child = kafka.child(folders.server("kafka"), port, ports.find_free({port}), keys)
    java, *arguments = child.argv
    recording = (java, f"-XX:AOTCacheOutput={cache}", *arguments)
    supervisor = Supervisor(folders, _ignore)
    try:
        await supervisor.start([replace(child, argv=recording, stop_ms_max=STOP_MS_MAX)])
    finally:
        await supervisor.drain([[child.name]])


def _ignore(_event: Event) -> None:
    """Ignore events of this broker."""
