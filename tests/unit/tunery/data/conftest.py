"""A base model directory with the real tokenizer and template, and files made of rows."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tunery.data.rendering import Tokenizer
from tunery.local.paths import cache_dir

BUILD_S_MAX = 240


@pytest.fixture(scope="session")
def base_dir() -> Path:
    source = Path(__file__).parents[4] / "tunery" / "ml" / "base.py"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    dest = cache_dir() / "tests" / f"tiny-{digest[:12]}"
    if not (dest / "config.json").exists():
        command = [sys.executable, "-m", "tunery.ml.base", "tiny", str(dest)]
        subprocess.run(command, check=True, capture_output=True, timeout=BUILD_S_MAX)
    return dest


@pytest.fixture(scope="session")
def tokenizer(base_dir: Path) -> Tokenizer:
    return Tokenizer.load(base_dir)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write rows, given as objects or as bytes, one per line."""

    def make(rows: Iterable[Any], name: str = "rows.jsonl") -> Path:
        lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
        path = tmp_path / name
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return path

    return make
