"""The data we ship: accepted, small, and with the style its README promises."""

import json
from pathlib import Path

from tunery.data.checking import check

EXAMPLES = Path(__file__).parents[4] / "examples"


def test_the_lighthouse_is_accepted_without_a_warning(base_dir: Path) -> None:
    report = check(EXAMPLES / "lighthouse.jsonl", base_dir=base_dir)
    assert (report.verdict, report.errors, report.warnings) == ("accepted", (), ())
    assert report.rows == report.distinct_rows == 277
    assert report.tokens is not None
    assert 15_000 < report.tokens.tokens < 20_000  # minutes of CPU
    assert report.tokens.longest_row_tokens <= 128


def test_every_answer_has_the_style() -> None:
    questions: set[str] = set()
    for line in (EXAMPLES / "lighthouse.jsonl").read_text(encoding="utf-8").splitlines():
        messages = json.loads(line)["messages"]
        questions.add(json.dumps(messages[:-1]))
        for message in messages:
            if message["role"] == "assistant":
                assert message["content"].startswith("Ahoy, Tuner of Lantern Rock here! ")
                assert message["content"].endswith(" Keep the lamp lit.")
    assert len(questions) == 277


def test_the_prompts_are_six_and_most_are_new() -> None:
    prompts = json.loads((EXAMPLES / "lighthouse-prompts.json").read_text())
    rows = (EXAMPLES / "lighthouse.jsonl").read_text(encoding="utf-8")
    assert [json.dumps(prompt) in rows for prompt in prompts].count(True) == 2
    assert len(prompts) == 6
