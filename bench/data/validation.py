"""Row validation of 1 kB chats: rows/s on one core, every fault named, beside usual tools.

`json` with the same checks is what one writes by hand: one loop over the lines, the rules of a chat
row one after the other. Both must name the same rows, or the run fails. `datasets` checks nothing
but JSON and column types, and ends at the first bad row, so it reads the good rows alone.
"""

import json
import re
import tempfile
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from bench.data.synthetic_texts import Maker
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
    rows = made(ROWS // (QUICK if quick else 1))
    content = b"".join(row + b"\n" for row in rows)
    good = b"".join(row + b"\n" for number, row in enumerate(rows) if number % BAD_EVERY)
    ours, by_json, bare = [], [], []
    for _ in range(ROUNDS):  # in turn, so that a busy machine is busy for all
        ours.append(_rate(lambda: _ours(content), len(rows)))
        by_json.append(_rate(lambda: _by_json(rows), len(rows)))
        bare.append(_rate(lambda: [json.loads(row) for row in good.splitlines()], len(rows)))
    named, expected = _ours(content), _by_json(rows)
    if named != expected or len(named) != len(range(0, len(rows), BAD_EVERY)):
        raise AssertionError(f"not the same bad rows: {sorted(named ^ expected)[:10]}")
    found = {
        "validate_rows_per_s": max(ours),
        "validate_ratio_to_json": max(ours) / max(by_json),
        "validate_json_rows_per_s": max(by_json),
        "validate_bare_json_rows_per_s": max(bare),
    }
    if (beside := _datasets(good)) is not None:
        found["validate_datasets_rows_per_s"] = beside
    return found


def made(rows: int) -> list[bytes]:
    """Chats of about 1 kB; every thousandth has one of ten faults."""
    maker = Maker(seed=2)
    out = []
    for number in range(rows):
        asked, answered = maker.text(300), maker.text(280)
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": maker.text(60)},
            {"role": "user", "content": f"{asked[:150]}\n{asked[150:]}"},
            {"role": "assistant", "content": answered},
            {"role": "user", "content": maker.text(60)},
            {"role": "assistant", "content": f"{answered[:40]}.\n\n{answered[40:80]}"},
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
    """Numbers of the rows that have an error."""
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
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice")
    return made


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
    spoken = [message.get("role") for message in messages if isinstance(message, dict)]
    if "assistant" not in spoken or spoken[-1] != "assistant" or spoken[0] == "assistant":
        errors.append("/messages")
    return errors, warnings


def _datasets(good: bytes) -> float | None:
    """Rows/s of streaming the good rows; None without the extra `train`."""
    try:
        import datasets
    except ImportError:
        print("datasets is not installed (extra `train`): not measured beside")
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
