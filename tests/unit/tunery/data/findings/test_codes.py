"""The catalogue, the documentation and the tests name the same codes."""

import io
import re
from pathlib import Path

import pytest

from tunery.data.checking import check
from tunery.data.findings.codes import CATALOGUE

ROOT = Path(__file__).parents[5]


def test_every_code_is_raised_somewhere_and_tested() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "tunery" / "data").rglob("*.py"))
    raised = set(re.findall(r'"([a-z_0-9]+)"', sources.replace(catalogue_source(), "")))
    tests = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))
    tested = set(re.findall(r'"([a-z_0-9]+)"', tests))
    assert CATALOGUE.keys() - raised == set()
    assert CATALOGUE.keys() - tested - {"few_rows"} == set()


def catalogue_source() -> str:
    return (ROOT / "tunery" / "data" / "findings" / "codes.py").read_text()


PAGE = (ROOT / "docs" / "reference" / "codes.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "reference" / "data.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### `(.*?)`\n\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"^```(?:jsonl|csv)\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = [(code, text) for code, section in SECTIONS.items() for text in BLOCK.findall(section)]


def test_the_catalogue_s_page_has_every_code_with_its_meaning_and_fix() -> None:
    sentences = {code: section.split("\n", 1)[0] for code, section in SECTIONS.items()}
    assert sentences == {code: f"{entry.meaning}. {entry.fix}" for code, entry in CATALOGUE.items()}


@pytest.mark.parametrize(("code", "text"), EXAMPLES, ids=[code for code, _ in EXAMPLES])
def test_the_examples_of_the_catalogue_have_their_code(code: str, text: str) -> None:
    report = check(io.BytesIO(text.encode()), min_rows=0)
    assert code in report.counts
    assert (report.verdict == "rejected") == (report.error_count > 0)
    others = {error.code for error in report.errors} - {code}
    assert not others, "one fault each, so that the example shows what it names"


@pytest.mark.parametrize("text", BLOCK.findall(GUIDE))
def test_the_examples_of_the_guide_are_accepted(text: str) -> None:
    report = check(io.BytesIO(text.encode()), min_rows=0)
    assert report.verdict == "accepted", report.errors
    assert report.rows == 1


def test_texts_are_sentences() -> None:
    for code, entry in CATALOGUE.items():
        assert not entry.meaning.endswith("."), code
        assert entry.fix.endswith((".", "jsonl")), code
