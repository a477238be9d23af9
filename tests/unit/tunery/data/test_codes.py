"""The catalogue, the documentation and the tests name the same codes."""

import re
from pathlib import Path

from tunery.data.codes import CATALOGUE

ROOT = Path(__file__).parents[4]


def test_every_code_is_raised_somewhere_and_tested() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "tunery" / "data").glob("*.py"))
    raised = set(re.findall(r'"([a-z_0-9]+)"', sources.replace(catalogue_source(), "")))
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    tested = set(re.findall(r'"([a-z_0-9]+)"', tests))
    assert CATALOGUE.keys() - raised == set()
    assert CATALOGUE.keys() - tested - {"few_rows"} == set()


def catalogue_source() -> str:
    return (ROOT / "tunery" / "data" / "codes.py").read_text()


def test_the_guide_lists_every_code_with_its_meaning() -> None:
    guide = (ROOT / "docs" / "guides" / "data.md").read_text()
    listed = dict(re.findall(r"^\| `([a-z_0-9]+)` \| (.*?) \|", guide, re.MULTILINE))
    assert listed == {code: entry.meaning for code, entry in CATALOGUE.items()}


def test_texts_are_sentences() -> None:
    for code, entry in CATALOGUE.items():
        assert not entry.meaning.endswith("."), code
        assert entry.fix.endswith((".", "jsonl")), code
