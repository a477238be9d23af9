"""A base model directory with the real tokenizer and template, and files made of rows."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.bases import tiny_base
from tunery.data.tokens.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def base_dir() -> Path:
    return tiny_base().dir


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
