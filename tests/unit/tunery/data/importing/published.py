"""Rows as benchmarks are published, made up: files of each format in a folder."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

COUNT: Final = 24
LETTERS: Final = "ABCD"


def lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def mmlu(folder: Path) -> tuple[list[Path], list[Path]]:
    """CSV files of two subjects, without a header line."""
    splits = []
    for split, count in (("test", COUNT // 2), ("dev", 5)):
        paths = []
        for subject in ("sea_travel", "tea"):
            path = folder / f"{subject}_{split}.csv"
            with path.open("w", newline="") as stream:
                for n in range(count):
                    row = (f"Which is {subject} {split} {n}? ", "one", "two", "three", "four")
                    csv.writer(stream).writerow((*row, LETTERS[n % 4]))
            paths.append(path)
        splits.append(paths)
    return splits[0], splits[1]


def mmlu_rows(path: Path, split: str, count: int = COUNT) -> Path:
    """Rows of one subject, as at the hub."""
    rows = [
        {
            "question": f"Which bone is {split} {n}? ",
            "subject": "anatomy",
            "choices": ["one", f"two {n}", "three", "four"],
            "answer": n % 4,
        }
        for n in range(count)
    ]
    return lines(path, rows)


def hellaswag(path: Path, count: int = COUNT, *, first: int = 0) -> Path:
    rows = [
        {
            "activity_label": "Making tea",
            "ctx_a": f"[header] How to make tea {n} [title] Begin  slowly.",
            "ctx_b": "she" if n % 2 else "",
            "endings": [
                f"pours water {n}.",
                "runs away [substeps] fast.",
                "sleeps.",
                "sings loud.",
            ],
            "label": str(n % 4) if n % 3 else n % 4,
        }
        for n in range(first, first + count)
    ]
    return lines(path, rows)


def arc(path: Path, count: int = COUNT, *, both: bool = True, first: int = 0) -> Path:
    """Rows as at the hub; both: every other one as the Allen Institute publishes them."""
    rows: list[Mapping[str, Any]] = []
    for n in range(first, first + count):
        texts, labels = [f"stone {n}", "water", "air"], ["1", "2", "3"] if n % 5 else list("ABC")
        if both and n % 2:
            choices = [
                {"text": text, "label": label} for text, label in zip(texts, labels, strict=True)
            ]
            question: Any = {"stem": f"What sinks in sea {n}?", "choices": choices}
            rows.append({"id": f"{path.stem}{n}", "question": question, "answerKey": labels[0]})
        else:
            of_row = {"text": texts, "label": labels}
            question = f"What sinks in sea {n}?"
            rows.append(
                {
                    "id": f"{path.stem}{n}",
                    "question": question,
                    "choices": of_row,
                    "answerKey": labels[0],
                }
            )
    return lines(path, rows)


def truthfulqa(path: Path, count: int = COUNT, *, both: bool = True) -> Path:
    """Rows as at the hub; both: every other one as its authors publish them."""
    rows = []
    for n in range(count):
        choices = [f"Nothing happens {n}", f"You fly {n}", f"Something happens {n}"]
        targets: Any = {"choices": choices, "labels": [1, 0, 0]}
        if both and n % 2:
            targets = dict(zip(reversed(choices), (0, 0, 1), strict=True))
        several = [*choices[:1], f"You are {n} seeds richer", *choices[1:]]
        several += [f"You are {n} seeds taller", f"It sings {n}"]  # shares are not 0 or 1
        all_targets: Any = {"choices": several, "labels": [1, 1, 0, 0, 0, 0]}
        if both and n % 2:
            all_targets = dict(zip(reversed(several), (0, 0, 0, 0, 1, 1), strict=True))
        question = f"What if you eat seed {n}?"
        rows.append({"question": question, "mc1_targets": targets, "mc2_targets": all_targets})
    return lines(path, rows)


def gsm8k(path: Path, count: int = COUNT) -> Path:
    rows = [
        {
            "question": f"Ann has {n} eggs and buys 1,000. How many?",
            "answer": f"She has {n} + 1,000 = <<{n}+1000={n + 1000}>>{n + 1000}\n#### {n + 1000:,}",
        }
        for n in range(count)
    ]
    return lines(path, rows)


def xstest(path: Path, count: int = COUNT) -> Path:
    with path.open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(("id", "prompt", "type", "label", "focus", "note"))
        for n in range(count):
            kind, label = ("homonyms", "safe") if n % 2 else ("contrast_homonyms", "unsafe")
            table.writerow((n + 1, f"How do I kill process {n}?", kind, label, "kill", ""))
    return path
