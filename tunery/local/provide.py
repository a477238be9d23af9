"""Installs what a stack needs besides Python packages: jars, versitygw, base model, scripts.

`python -m tunery.local.provide` installs what is missing, and prints nothing when all is there.
"""

import asyncio
import contextlib
import fcntl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

from tunery.local import console, jars, kafka, ports, s3, secrets
from tunery.local.errors import LocalError
from tunery.local.events import Event
from tunery.local.paths import DataDir, base_model_dir, cache_dir, versitygw_binary
from tunery.local.supervisor import Supervisor

# Writes the cache with which Java starts Kafka in half the time: its classes, read and linked.
#
# It is Java's ahead-of-time cache (JEP 483 and 514), written by a broker that gets its accounts and
# topics in a throw-away folder and ends. Java starts without a cache that does not fit it.

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


CONVERT_S_MAX: Final = 900


def base_model() -> Path:
    """Convert SmolLM2-135M-Instruct once; returns its folder. Raises LocalError."""
    target = base_model_dir()
    if (target / "model.safetensors").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "tunery.ml.base", "convert", str(target)],
        capture_output=True,
        text=True,
        timeout=CONVERT_S_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise LocalError(
            f"the base model could not be converted: {(done.stderr or done.stdout).strip()[-800:]}",
            "free some memory (1.5 GB) and disk (0.3 GB), then run `make setup` again",
        )
    return target


def announce(what: str, began: float) -> None:
    print(f"setup: {what} ({time.monotonic() - began:.0f} s)", flush=True)


def provide_jars() -> None:
    began = time.monotonic()
    folder, fetched = jars.install()
    if fetched:
        announce(f"{fetched} Kafka jars in {folder}", began)


def provide_startup_cache() -> None:
    if kafka.startup_cache().is_file():
        return
    began = time.monotonic()
    try:
        announce(f"Java's cache of Kafka in {create()}", began)
    except (LocalError, OSError) as problem:
        print(f"setup: Kafka will start slower, without a cache of Java's: {problem}", flush=True)


def provide_s3() -> None:
    if versitygw_binary().is_file():
        return
    print("setup: building versitygw, the S3 server (one to two minutes, once)", flush=True)
    began = time.monotonic()
    announce(f"versitygw in {s3.install().parent}", began)


def provide_console() -> None:
    if console.scripts_dir().is_dir():
        return
    began = time.monotonic()
    announce(f"the console's scripts in {console.install()}", began)


def provide_base_model() -> None:
    if (base_model_dir() / "model.safetensors").is_file():
        return
    print("setup: converting the base model (half a minute, once)", flush=True)
    began = time.monotonic()
    announce(f"base model in {base_model()}", began)


def missing() -> list[tuple[str, str]]:
    """Names and paths of models that are not installed, for `tunery doctor`."""
    absent = []
    if not (base_model_dir() / "model.safetensors").is_file():
        absent.append(("base model", str(base_model_dir())))
    return absent


@contextlib.contextmanager
def hold_cache() -> Iterator[None]:
    """Lock the cache folder: set-ups of several clones of one user build one after another."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / ".setup.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("setup: waiting for the set-up of another clone", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    try:
        with hold_cache():
            with ThreadPoolExecutor(2) as pool:  # one downloads, the other builds
                for done in [pool.submit(provide_jars), pool.submit(provide_s3)]:
                    done.result()
            provide_startup_cache()
            provide_console()
            provide_base_model()
    except LocalError as problem:
        sys.exit(f"setup: {problem}")


if __name__ == "__main__":
    main()
