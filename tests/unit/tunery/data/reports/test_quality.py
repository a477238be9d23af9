"""Statistics of all rows of a file."""

import io
import json

import pytest

from tunery.data.checking import check
from tunery.data.reports.quality import EXTREME_CHARS_MIN, script_of
from tunery.data.reports.report import CheckReport


def report_of(answers: list[str]) -> CheckReport:
    rows = [{"prompt": f"Question {n}?", "completion": answer} for n, answer in enumerate(answers)]
    return check(io.BytesIO(b"\n".join(json.dumps(row).encode() for row in rows)))


def test_one_class_of_answers_that_outnumbers_the_others() -> None:
    assert "class_imbalance" in report_of(["yes"] * 38 + ["no"] * 2).counts
    assert "class_imbalance" not in report_of(["yes"] * 20 + ["no"] * 20).counts
    free = [f"This answer has many words, and each one is of its own kind: {n}" for n in range(40)]
    assert "class_imbalance" not in report_of(free).counts


def test_labels_of_one_kind() -> None:
    rows = [{"prompt": f"Q {n}", "completion": f"A {n}", "label": True} for n in range(30)]
    report = check(io.BytesIO(b"\n".join(json.dumps(row).encode() for row in rows)))
    assert "class_imbalance" in report.counts


def test_a_row_far_longer_than_the_others_is_named() -> None:
    rows = [f"Answer {n}." for n in range(30)] + ["x " * EXTREME_CHARS_MIN]
    (warning,) = [
        finding for finding in report_of(rows).warnings if finding.code == "extreme_length"
    ]
    assert (warning.row, warning.line) == (31, 31)
    assert "16,0" in warning.message
    assert "extreme_length" not in report_of(rows[:30]).counts


def test_a_row_in_another_script_is_named() -> None:
    rows = [f"Answer number {n}." for n in range(30)]
    assert "language_mix" in report_of([*rows, "Туман это облако", "Море"]).counts
    assert "language_mix" not in report_of(rows).counts


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Fog", "Latin"),
        ("Brouillard à l'île", "Latin"),
        ("Туман", "Cyrillic"),
        ("霧は雲です", "Japanese"),
        ("雾是云", "Chinese"),
        ("안개", "Korean"),
        ("ضباب", "Arabic"),
        ("ערפל", "Hebrew"),
        ("कोहरा", "Devanagari"),
        ("หมอก", "Thai"),
        ("", "Latin"),
    ],
)
def test_scripts(text: str, name: str) -> None:
    assert script_of(text) == name


def test_lengths_are_counted_by_characters() -> None:
    report = report_of(["a" * 100] * 3 + ["b"])
    assert [(bin_.upto, bin_.rows) for bin_ in report.lengths] == [(32, 1), (128, 3)]
