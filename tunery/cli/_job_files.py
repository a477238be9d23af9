"""Files that options of a job name: of a mixture, with prompts, with a chat template."""

import json
from pathlib import Path
from typing import Any

import click


def mixed_file(named: str) -> dict[str, Any]:
    """A file of `--mix`: `data.jsonl=0.3`, or without a weight."""
    file, mark, weight = named.rpartition("=")
    if not mark:
        return {"file": named}
    try:
        return {"file": file, "weight": float(weight)}
    except ValueError:
        raise click.BadParameter(
            f"{weight!r} is no weight: write {file}=0.3", param_hint="--mix"
        ) from None


def read_template(path: Path) -> str:
    """The chat template in a file. Raises BadParameter."""
    try:
        return path.read_text(encoding="utf-8-sig")  # editors of Windows begin with a mark
    except UnicodeDecodeError as error:
        message = f"{path} is not text in UTF-8: byte {error.start}"
        raise click.BadParameter(message, param_hint="--chat-template") from None


def read_prompts(path: Path) -> list[str]:
    """The prompts in a file. Raises BadParameter."""
    text = path.read_text(encoding="utf-8")
    if not text.lstrip().startswith("["):
        return [line for line in text.splitlines() if line.strip()]
    try:
        prompts = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{path} begins like a JSON array and is none: {error}", param_hint="--prompts"
        ) from None
    return list(prompts)
