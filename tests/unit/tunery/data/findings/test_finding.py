"""Excerpts are short, on one line and without personal data; counts stay exact."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.data.findings import finding as finding_module
from tunery.data.findings.codes import CATALOGUE
from tunery.data.findings.finding import Collector, Finding, Note, excerpt
from tunery.data.findings.limits import EXCERPT_CHARS_MAX, EXCERPT_CHARS_READ_MAX, ROW_BYTES_MAX
from tunery.data.personal import mask

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


#: header, claims and signature of a JSON web token that is far longer than an excerpt
HEADER, CLAIMS, SIGNATURE = (
    "eyJ" + "hbGciOiJSUzI1NiJ9",
    "eyJ" + "zdWIiOiIx" * 60,
    "c2lnbmF0dXJl" * 30,
)
TOKEN = f"{HEADER}.{CLAIMS}.{SIGNATURE}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TOKEN, "[secret]"),
        (f"Bearer {TOKEN} is refused", "Bearer [secret]…"),
        (f"Bearer {TOKEN}".encode(), "Bearer [secret]"),
        (f"a {TOKEN} b {TOKEN} c", "a [secret]…"),
        (
            f"a {HEADER}.{'eyJ' + 'x' * 10_000}.{SIGNATURE} b",
            "a [secret]…",
        ),  # longer than any window
        (f"a {'eyJ' + 'x' * 10_000}.{CLAIMS}.{SIGNATURE} b", "a [secret]…"),
        (f"a {HEADER}.{CLAIMS}", "a [secret]"),  # cut off by the tenant
        (f"{HEADER}.x.y.z.{SIGNATURE} b", "[secret]…"),  # encrypted: five parts
        ("sk-" + "ab1" * 60 + " b", "[secret] b"),
        ("a" * 10_000 + " b", "a" * (EXCERPT_CHARS_MAX - 1) + "…"),
    ],
)
def test_a_secret_that_is_longer_than_an_excerpt_is_masked_whole(
    text: str | bytes, expected: str
) -> None:
    assert excerpt(text) == expected


@given(
    st.integers(0, 4 * EXCERPT_CHARS_MAX + 50),
    st.sampled_from((TOKEN, "ann.lee+x@mail.example.org", "sk-" + "ab1" * 60, "AKIA" + "AB12" * 4)),
    st.booleans(),
)
def test_no_part_of_a_secret_is_shown_wherever_the_cuts_fall(
    blanks: int, secret: str, as_bytes: bool
) -> None:
    text = f"{'é ' * (blanks // 2)}{secret} and more"
    shown = excerpt(text.encode() if as_bytes else text)
    assert not any(secret[at : at + 6] in shown for at in range(len(secret) - 5))


@pytest.mark.parametrize(
    "text", ["x" * ROW_BYTES_MAX, b"x" * ROW_BYTES_MAX, " x" * (ROW_BYTES_MAX // 2)]
)
def test_the_time_for_an_excerpt_does_not_grow_with_the_text(
    text: str | bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def counted(piece: str) -> str:
        read.append(len(piece))
        return mask(piece)

    monkeypatch.setattr(finding_module, "mask", counted)
    excerpt(text)
    assert sum(read) <= EXCERPT_CHARS_READ_MAX
    if isinstance(text, str):
        excerpt(text, len(text) // 2)
        assert sum(read) <= 6 * EXCERPT_CHARS_READ_MAX


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("one two three", 4, "…two three"),
        ("one two three", 5, "…wo three"),
        ("one  two three", 4, "… two three"),
        (f"a {TOKEN} b", 200, "…[secret]…"),
        (f"{TOKEN}, {TOKEN}", len(TOKEN) + 2, "…[secret]"),
        ("write to ann.lee@example.org now", 14, "…[email] now"),
        ("at the end", 10, "…"),
    ],
)
def test_an_excerpt_from_the_middle_shows_no_end_of_a_secret(
    text: str, start: int, expected: str
) -> None:
    assert excerpt(text, start) == expected


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
