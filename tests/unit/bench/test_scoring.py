"""Benchmark of scoring: its questions, and the comparison of two scorers."""

import json
import sys
from pathlib import Path

import pytest

from bench.scoring import SHOTS, compare, run, write_requests


def test_all_questions_have_the_same_examples_before_them(tmp_path: Path) -> None:
    write_requests(3, tmp_path / "requests.json")
    asked = json.loads((tmp_path / "requests.json").read_text())
    begins = [request["context"].rpartition("Question:") for request in asked]
    assert len({before for before, _, _ in begins}) == 1
    assert begins[0][0].count("Answer:") == SHOTS
    assert len({question for _, _, question in begins}) == 3


def test_differences_and_answers_that_changed_are_counted() -> None:
    ours = {"seconds": 2.0, "base": [[-1.0, -2.0]], "adapter": [[-1.0, -2.0]]}
    theirs = {"seconds": 9.0, "base": [[-1.5, -2.0]], "adapter": [[-2.0, -1.0]]}
    figures = compare(ours, theirs)
    assert figures == {"times_faster": 4.5, "largest_difference": 1.0, "answers_changed": 1}


def test_a_run_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="division by zero"):
        run(sys.executable, "-c", "1 / 0")
