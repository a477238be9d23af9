"""Input of the benchmark of the longest evaluation."""

import json
from pathlib import Path

import pytest

from bench.evaluation import PROMPT_TOKENS, write_rows
from services.gateway.jobs.domain.requested import MEASURED_ROWS_MAX
from tests.bases import tiny_base
from tunery.work.spec import MEASURED_TOKENS_MAX

pytestmark = [pytest.mark.train, pytest.mark.soak]


def test_rows_have_the_largest_allowed_number_and_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoTokenizer

    base = tiny_base().dir
    tokenizer = AutoTokenizer.from_pretrained(base)
    monkeypatch.setattr(
        "bench.evaluation.documents",
        lambda count: [[7 + n % 90 for n in range(start, start + 9)] for start in range(count)],
    )
    write_rows(base, tmp_path / "rows.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert len(rows) == MEASURED_ROWS_MAX
    assert {len(row["prompt_ids"]) for row in rows} == {PROMPT_TOKENS}
    lengths = [len(tokenizer(row["reference"]).input_ids) for row in rows[:8]]
    assert min(lengths) >= MEASURED_TOKENS_MAX, lengths
