"""Validation of chat rows of 1 kB: rows per second on one core, compared with the usual tools.

A loop with the module json and the same checks is what one writes by hand. Both must reject the
same rows, or the run fails. The library datasets only checks JSON and column types and stops at
the first bad row, so it reads the valid rows alone.
"""

import json
import re
import tempfile
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from bench.data.synthetic_texts import TextGenerator
from tunery.data.checking import Checker
from tunery.data.containers.reading import open_rows

ROWS: Final = 100_000
QUICK: Final = 10  # times fewer
ROUNDS: Final = 3
BAD_EVERY: Final = 1_000
GOAL: Final = "validate_ratio_to_json >= 2"

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SPECIAL: Final = re.compile(r"<\|[^\s|<>]{1,40}\|>|</?s>|<(?:bos|eos|pad|unk)>|\[/?INST\]")
_LINK: Final = re.compile(
    r"\b(?:this|the following|attached|above) (?:link|url|website|image|picture|photo)\b",
    re.IGNORECASE,
)
_PLACEHOLDERS: Final = {"<noinput>", "n/a", "none", "null", "nan", "tbd", "todo", "lorem ipsum"}


def run(quick: bool) -> dict[str, float]:
    """Measure the rates. Raises `AssertionError` when both do not reject the same rows."""
    rows = synthetic_rows(ROWS // (QUICK if quick else 1))
    content = b"".join(row + b"\n" for row in rows)
    good = b"".join(row + b"\n" for number, row in enumerate(rows) if number % BAD_EVERY)
    ours, by_json, bare = [], [], []
    for _ in range(ROUNDS):  # in turn, so that other load affects all of them
        ours.append(_rate(lambda: _ours(content), len(rows)))
        by_json.append(_rate(lambda: _by_json(rows), len(rows)))
        bare.append(_rate(lambda: [json.loads(row) for row in good.splitlines()], len(rows)))
    rejected, expected = _ours(content), _by_json(rows)
    if rejected != expected or len(rejected) != len(range(0, len(rows), BAD_EVERY)):
        raise AssertionError(f"the rejected rows differ: {sorted(rejected ^ expected)[:10]}")
    results = {
        "validate_rows_per_s": max(ours),
        "validate_ratio_to_json": max(ours) / max(by_json),
        "validate_json_rows_per_s": max(by_json),
        "validate_bare_json_rows_per_s": max(bare),
    }
    if (beside := _datasets(good)) is not None:
        results["validate_datasets_rows_per_s"] = beside
    return results


def synthetic_rows(rows: int) -> list[bytes]:
    """Chats of about 1 kB. Every thousandth has one of ten faults."""
    generator = TextGenerator(seed=2)
    out = []
    for number in range(rows):
        question, answer = generator.text(300), generator.text(280)
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": generator.text(60)},
            {"role": "user", "content": f"{question[:150]}\n{question[150:]}"},
            {"role": "assistant", "content": answer},
            {"role": "user", "content": generator.text(60)},
            {"role": "assistant", "content": f"{answer[:40]}.\n\n{answer[40:80]}"},
        ]
        raw = json.dumps({"messages": messages}).encode()
        out.append(raw if number % BAD_EVERY else _broken(raw, number // BAD_EVERY))
    return out


def _broken(raw: bytes, kind: int) -> bytes:
    changes = (
        (b'"role": "system"', b'"role": "System"'),
        (b'"role": "assistant"', b'"role": "user"'),
        (b'"content": "', b'"content": 5, "x": "'),
        (b'"content": "', b'"content": "a", "content": "'),
        (b'"messages": [', b'"message": ['),
        (b"}]}", b"},]}"),
        (b"}]}", b"}"),
        (b"}]}", b"}]} {}"),
        (b'"content": "', b'"content": "\\u0000'),
        (b'"role": "user", ', b""),
    )
    old, new = changes[kind % len(changes)]
    return raw.replace(old, new, 1)


def _rate(work: Callable[[], object], rows: int) -> float:
    began = time.process_time()
    work()
    return rows / (time.process_time() - began)


def _ours(content: bytes) -> set[int]:
    """The numbers of the rows that have an error."""
    checker = Checker()
    with open_rows(BytesIO(content)) as rows:
        for _ in checker.conversations(rows):
            pass
    return {
        finding.row
        for finding in checker.findings.with_severity("error")
        if finding.row is not None
    }


def _by_json(rows: list[bytes]) -> set[int]:
    bad = set()
    for number, raw in enumerate(rows, 1):
        try:
            row = json.loads(raw, object_pairs_hook=_object)
        except ValueError:
            bad.add(number)
            continue
        errors, _ = _faults(row)
        if errors:
            bad.add(number)
    return bad


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key is repeated")
    return value


def _faults(row: Any) -> tuple[list[str], list[str]]:
    """Errors and warnings of one row."""
    errors: list[str] = []
    warnings: list[str] = []
    messages = row.get("messages") if isinstance(row, dict) else None
    if not isinstance(messages, list) or not messages:
        return ["messages"], warnings
    before = {"role": "", "content": ""}
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            errors.append(f"/messages/{index}")
            continue
        role, content = message.get("role"), message.get("content")
        if role not in ("system", "user", "assistant"):
            errors.append(f"/messages/{index}/role")
        if not isinstance(content, str) or not content.strip():
            errors.append(f"/messages/{index}/content")
            continue
        if role == before.get("role") or (role == "system" and index):
            errors.append(f"/messages/{index}/role")
        if "\0" in content:
            errors.append(f"/messages/{index}/content")
        if set(message) - {"role", "content"}:
            warnings.append(f"/messages/{index}")
        if _CONTROL.search(content) or _SPECIAL.search(content):
            warnings.append(f"/messages/{index}/content")
        if content.strip().lower() in _PLACEHOLDERS or content == before.get("content"):
            warnings.append(f"/messages/{index}/content")
        if role == "user" and _LINK.search(content, 0, 200):
            warnings.append(f"/messages/{index}/content")
        before = message
    roles = [message.get("role") for message in messages if isinstance(message, dict)]
    if "assistant" not in roles or roles[-1] != "assistant" or roles[0] == "assistant":
        errors.append("/messages")
    return errors, warnings


def _datasets(good: bytes) -> float | None:
    """Rows per second of streaming the valid rows; None without the extra "train"."""
    try:
        import datasets
    except ImportError:
        print("datasets is not installed (extra `train`), so it is not compared")
        return None
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_bytes(good)
        rows = datasets.load_dataset(
            "json", data_files=str(path), split="train", streaming=True, cache_dir=folder
        )
        count = good.count(b"\n")
        return _rate(lambda: sum(1 for _ in rows), count)
