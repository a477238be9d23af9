"""Choice of the rows that are answered for measures; `test_scoring` has both sides answer them."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.bases import tiny_base
from tunery.work.exits import WorkError
from tunery.work.spec import ScoreSpec

pytestmark = pytest.mark.train


def spec(path: Path, measures: str | None) -> ScoreSpec:
    return ScoreSpec(
        base_dir="b",
        base_sha256="0" * 64,
        adapter_dir="a",
        out="o",
        valid_rows=str(path),
        measures=measures,
        measured_rows=20,
    )


def test_without_measures_nothing_is_answered(tmp_path: Path) -> None:
    from tunery.ml.measured import measured_rows

    asked: list[str] = []

    def side(name: str) -> nullcontext[None]:
        asked.append(name)
        return nullcontext()

    measured = measured_rows(
        spec(tmp_path / "none", None), None, side, lambda stage, total: lambda done: None
    )
    assert (measured, asked) == (((), ()), [])


def test_a_row_that_cannot_be_read_names_its_file(tmp_path: Path) -> None:
    from tunery.ml.measured import measured_rows

    path = tmp_path / "validation.jsonl"
    path.write_text('{"row": 1}\n')
    with pytest.raises(WorkError, match=r"validation\.jsonl"):
        measured_rows(
            spec(path, '["chrf"]'), None, lambda name: nullcontext(), lambda *_: lambda done: None
        )


def test_answers_may_be_as_long_as_the_longest_reference_needs() -> None:
    from transformers import AutoTokenizer

    from tunery.ml.measured import SLACK, answer_tokens

    tokenizer = AutoTokenizer.from_pretrained(tiny_base().dir)
    longest = "the long grey harbour wall"
    tokens = len(tokenizer(longest, add_special_tokens=False).input_ids)
    assert answer_tokens(tokenizer, ["a lamp", longest], 128) == tokens + SLACK
    assert answer_tokens(tokenizer, [longest], 3) == 3
    assert answer_tokens(tokenizer, [], 128) == SLACK
