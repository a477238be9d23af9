"""Excerpts are short, on one line and without personal data; counts stay exact."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.data.findings.codes import CATALOGUE
from tunery.data.findings.finding import Collector, Finding, Note, excerpt
from tunery.data.findings.limits import EXCERPT_CHARS_MAX

ERROR = next(code for code, entry in CATALOGUE.items() if entry.severity == "error")
WARNING = next(code for code, entry in CATALOGUE.items() if entry.severity == "warning")


def finding(code: str, row: int | None = 1) -> Finding:
    return Note(code).to_finding(row, row)


@given(st.one_of(st.text(), st.binary()))
def test_an_excerpt_is_short_and_on_one_line(text: str | bytes) -> None:
    short = excerpt(text)
    assert len(short) <= EXCERPT_CHARS_MAX
    assert len(short.splitlines()) <= 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("  plain  ", "plain"),
        ("a\x00b\u2028c\ud800", "a\ufffdb\ufffdc\ufffd"),
        (b"caf\xc3\xa9 \xff", "caf\xe9 \ufffd"),
        ("order 1234567", "order [number]"),
        ("order 123456", "order 123456"),
        ("x" * EXCERPT_CHARS_MAX, "x" * EXCERPT_CHARS_MAX),
        ("x" * (EXCERPT_CHARS_MAX + 1), "x" * (EXCERPT_CHARS_MAX - 1) + "…"),
    ],
)
def test_excerpts_replace_what_cannot_be_printed_and_mask_long_numbers(
    text: str | bytes, expected: str
) -> None:
    assert excerpt(text) == expected


def test_an_address_that_the_cut_would_divide_is_masked_whole() -> None:
    assert "ann" not in excerpt("x" * (EXCERPT_CHARS_MAX - 6) + " ann@example.com")


def test_a_note_gets_its_row_and_the_words_of_the_catalogue() -> None:
    entry = CATALOGUE[ERROR]
    noted = Note(ERROR, "/messages/0", "3 of them", "text").to_finding(7, 9)
    assert (noted.row, noted.line, noted.pointer, noted.excerpt) == (7, 9, "/messages/0", "text")
    assert noted.message == f"{entry.meaning}: 3 of them"
    assert noted.hint == entry.fix
    assert finding(ERROR).message == entry.meaning


def test_severity_follows_from_the_code() -> None:
    assert (Note(ERROR).is_error, finding(ERROR).is_error) == (True, True)
    assert (Note(WARNING).is_error, finding(WARNING).is_error) == (False, False)


def test_counts_are_exact_where_the_list_of_each_code_is_cut() -> None:
    collector = Collector(listed_max=2)
    for row, code in enumerate((ERROR, WARNING, ERROR, ERROR, ERROR), 1):
        collector.add(finding(code, row))
    assert [(each.row, each.code) for each in collector.listed] == [
        (1, ERROR),
        (2, WARNING),
        (3, ERROR),
    ]
    assert (collector.count("error"), collector.count("warning")) == (4, 1)
    assert [each.row for each in collector.with_severity("error")] == [1, 3]
