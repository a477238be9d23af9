"""A base model for tests: two random layers with the real tokenizer and template."""

import fcntl
import json
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from tunery.local.paths import cache_dir
from tunery.ml import base

BUILD_S_MAX: Final = 240


class Base(NamedTuple):
    dir: Path
    sha256: str


@cache
def tiny_base() -> Base:
    """Made once for each version of the code that makes it, kept with the other downloads."""
    version = sha256(Path(base.__file__).read_bytes()).hexdigest()[:12]
    folder = cache_dir() / "tests" / f"tiny-{version}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tunery.ml.base", "tiny", str(folder)]
    with (folder.parent / "tiny.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process makes it, those beside it wait
        completed = subprocess.run(command, capture_output=True, check=True, timeout=BUILD_S_MAX)
    return Base(folder, json.loads(completed.stdout)["sha256"])
