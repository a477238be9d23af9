"""Indexes list what is there, and links lead somewhere."""

import re
from pathlib import Path
from typing import Final

from tests.repo.topics import PAGE, page

ROOT: Final = Path(__file__).resolve().parents[2]
DECISIONS: Final = ROOT / "docs" / "decisions"
LINK: Final = re.compile(r"\]\(([^)#:]+)\)")


def test_the_page_of_topics_is_that_of_the_catalogue() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.repo.topics"


def test_decisions_are_numbered_without_gaps_and_listed_by_their_titles() -> None:
    records = sorted(DECISIONS.glob("[0-9]*.md"))
    numbers = [f"{number:04}" for number in range(1, len(records) + 1)]
    assert [record.name[:4] for record in records] == numbers
    listed = (DECISIONS / "README.md").read_text(encoding="utf-8").splitlines()
    for record in records:
        number, title = record.read_text(encoding="utf-8").splitlines()[0][2:].split(": ", 1)
        assert f"* [{number}]({record.name}) {title}" in listed


def test_links_between_documents_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("services/*/README.md")]
    broken = [
        f"{one.relative_to(ROOT)}: {link}"
        for one in pages
        for link in LINK.findall(one.read_text(encoding="utf-8"))
        if not (one.parent / link).exists()
    ]
    assert broken == []


def test_every_page_of_docs_is_in_its_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    unlisted = {
        one for one in pages if not one.startswith("decisions/") and f"({one})" not in index
    }
    assert unlisted == {"README.md"}


def test_every_service_has_a_page() -> None:
    services = [path.parent for path in ROOT.glob("services/*/__main__.py")]
    assert len(services) == 8
    assert [one.name for one in services if not (one / "README.md").is_file()] == []
