"""Models that an operator brings: small ones that work, and those that cannot be used."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tunery.data.checking import check
from tunery.data.dialects.conversation import Conversation
from tunery.data.screening import operator_models
from tunery.data.screening.operator_models import ModelUnusable
from tunery.data.screening.screening import ScreeningPolicy, scrub

HERE = "tests_own_models"
SOURCE = """
import re
from tunery.data.personal import Span

RUDE = {"idiot", "moron"}
TITLE = re.compile(r"(?:Mr|Mrs|Dr) [A-Z][a-z]+")

def rude(texts):
    words = [re.findall(r"[a-z]+", text.lower()) for text in texts]
    return [min(1, 4 * sum(word in RUDE for word in text) / max(len(text), 1)) for text in words]

def titled(text):
    return [Span("person", *match.span()) for match in TITLE.finditer(text)]

def too_few(texts):
    return []

def beyond(texts):
    return [1.5 for _ in texts]

def outside(text):
    return [Span("person", 0, len(text) + 1)]

nothing = None
"""


@pytest.fixture(autouse=True)
def own_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"{HERE}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, HERE, raising=False)
    operator_models.load.cache_clear()


def rows(path: Path, texts: Sequence[str]) -> Path:
    file = path / "rows.jsonl"
    file.write_text("".join(f'{{"prompt": "{text}", "completion": "Well."}}\n' for text in texts))
    return file


@pytest.mark.parametrize(
    ("toxic", "code", "verdict"),
    [("warn", "toxic_row", "accepted"), ("block", "toxic_refused", "rejected")],
)
def test_toxic_rows_are_named_by_the_operator_s_model(
    tmp_path: Path, toxic: Any, code: str, verdict: str
) -> None:
    texts = [f"What is {number}?" for number in range(600)]  # more than are rated together
    texts[3] = texts[599] = "Why, you idiot?"
    policy = ScreeningPolicy(toxic=toxic, toxicity_model=f"{HERE}:rude")
    report = check(rows(tmp_path, texts), min_rows=0, policy=policy)
    findings = [finding for finding in (*report.errors, *report.warnings) if finding.code == code]
    assert [finding.row for finding in findings] == [4, 600]
    assert "rated 100 %" in findings[0].message
    assert report.verdict == verdict
    assert "toxicity" not in report.not_looked_for


def test_how_toxic_is_too_toxic_is_the_operator_s_choice(tmp_path: Path) -> None:
    file = rows(tmp_path, ["You idiot, how are you and all of your friends today?"])  # 4 of 12
    for percent, count in ((33, 1), (34, 0)):
        policy = ScreeningPolicy(toxicity_model=f"{HERE}:rude", toxic_percent=percent)
        report = check(file, min_rows=0, policy=policy)
        assert report.counts.get("toxic_row", 0) == count


def test_names_are_reported_masked_or_refused(tmp_path: Path) -> None:
    file = rows(tmp_path, ["Ask Mrs Berg at berg@mail.example"])
    for rule, code in (("warn", "personal_data"), ("block", "personal_data_refused")):
        policy = ScreeningPolicy(personal=rule, personal_model=f"{HERE}:titled")  # type: ignore[arg-type]  # a loop
        report = check(file, min_rows=0, policy=policy)
        assert report.counts[code] == 2
        assert "Berg" not in report.to_json().decode().replace("berg@", "")
        assert "names of people" not in report.not_looked_for
    row = Conversation([{"role": "user", "content": "Ask Mrs Berg at berg@mail.example"}], [False])
    hidden = scrub(row, ScreeningPolicy(personal="scrub", personal_model=f"{HERE}:titled"))
    assert hidden.messages[0]["content"] == "Ask [person] at [email]"


def test_models_that_only_warn_are_no_part_of_the_bytes() -> None:
    warns = ScreeningPolicy(personal="warn", personal_model="a:b", toxicity_model="c:d")
    assert warns.without_warnings() == ScreeningPolicy(personal="warn")
    acts = ScreeningPolicy(
        personal="scrub", personal_model="a:b", toxic="block", toxicity_model="c:d"
    )
    assert acts.without_warnings() == acts


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("no_colon", "module:callable"),
        ("not_there:model", "No module named 'not_there'"),
        (f"{HERE}:missing", "missing"),
        (f"{HERE}:nothing", "name a callable"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_reported_before_the_first_row(
    tmp_path: Path, model: str, why: str
) -> None:
    for policy in (
        ScreeningPolicy(toxicity_model=model),
        ScreeningPolicy(personal="warn", personal_model=model),
    ):
        with pytest.raises(ModelUnusable, match=why):
            check(rows(tmp_path, []), min_rows=0, policy=policy)


def test_answers_that_no_model_may_give_are_named() -> None:
    with pytest.raises(ModelUnusable, match="2 texts with 0 numbers"):
        operator_models.rate(f"{HERE}:too_few", ["a", "b"])
    with pytest.raises(ModelUnusable, match="from 0 to 1"):
        operator_models.rate(f"{HERE}:beyond", ["a"])
    with pytest.raises(ModelUnusable, match="within the text"):
        operator_models.recognise(f"{HERE}:outside", "text")
