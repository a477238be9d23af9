"""Personal data by shape: what is found, what is not, and that no text makes it slow."""

import re
from importlib import import_module
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.data import personal
from tunery.data.personal import find_spans, mask

ops: Any = import_module("re._constants")
parser: Any = import_module("re._parser")
REPEATS_MAX = 10_000  # steps that one start of a match may take


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("write to ann.lee+x@mail.example.org, please", "write to [email], please"),
        ("call +49 30 1234567 today", "call [phone] today"),
        ("call (415) 555-0132 or 415-555-0132.", "call [phone] or [phone]."),
        ("card 4111 1111 1111 1111, 4111-1111-1111-1111", "card [card], [card]"),
        ("amex 378282246310005", "amex [card]"),
        ("to DE89 3704 0044 0532 0130 00 AND more", "to [iban] AND more"),
        ("to GB82WEST12345698765432.", "to [iban]."),
        ("from 192.0.2.17:80 and 2001:db8::8a2e:370:7334", "from [ip]:80 and [ip]"),
        ("ssn 219-09-9999", "ssn [ssn]"),
        ("key AKIA" + "IOSFODNN7EXAMPLE" + " x", "key [secret] x"),
        ("ghp_" + "a1B2" * 9, "[secret]"),
        ("OPENAI_API_KEY=sk-" + "proj-" + "x" * 40, "OPENAI_API_KEY=[secret]"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nok",
            "[secret]\nok",
        ),
        ("eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJlLi4u", "[secret]"),
    ],
)
def test_a_value_is_replaced_by_its_kind(text: str, masked: str) -> None:
    assert mask(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "in 2023-10-15 and 1,000,000 of 3.14159265",
        "12345678901234567890",
        "4111 1111 1111 1112",  # check digit wrong
        "DE89 3704 0044 0532 0130 01",  # remainder wrong
        "300.1.2.3 and version 1.2.3",
        "127.0.0.1 and 0.0.0.0 and ::1",
        "000-12-3456",
        "@property\ndef f(): ... # a@b",
        "std::vector<int>::iterator, 12:30:45",
        "sk-short, ghost, heyJude.",
        "1 2 3 4 5 6 7 8 9 10 11 12",
        "the sum 100 200 300 400",
    ],
)
def test_numbers_without_a_personal_shape_are_not_masked(text: str) -> None:
    assert find_spans(text) == []


@given(st.text(alphabet="a1@.:-+ ()DEe\n", max_size=200))
def test_spans_are_in_order_and_apart(text: str) -> None:
    spans = find_spans(text)
    assert all(a.end <= b.start for a, b in pairwise(spans))
    assert all(0 <= span.start < span.end <= len(text) for span in spans)


def test_masked_text_has_no_further_findings() -> None:
    text = "a@b.example 4111111111111111 +1 415 555 0132 hf_" + "q" * 34
    assert find_spans(mask(text)) == []


def test_only_the_wanted_kinds_are_looked_for() -> None:
    text = "a@b.example hf_" + "q" * 34
    assert mask(text, {"secret"}) == "a@b.example [secret]"
    assert mask(text, {"email", "card"}) == "[email] hf_" + "q" * 34


def steps(parsed: Any) -> int:
    """The most steps one attempt at a match can take: every quantifier multiplies."""
    total = 0
    for op, argument in parsed:
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            _, most, inner = argument
            assert most is not ops.MAXREPEAT, "a quantifier without a bound"
            total += most * steps(inner)
        elif op is ops.BRANCH:
            total += sum(steps(branch) for branch in argument[1])
        elif op is ops.SUBPATTERN:
            total += steps(argument[-1])
        elif op in (ops.ASSERT, ops.ASSERT_NOT):
            total += steps(argument[1])
        else:
            total += 1
    return total


PATTERNS = [value for value in vars(personal).values() if isinstance(value, re.Pattern)]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.pattern[:20])
def test_every_quantifier_is_bounded(pattern: re.Pattern[str]) -> None:
    assert steps(parser.parse(pattern.pattern)) <= REPEATS_MAX


@pytest.mark.parametrize("unit", ["a", "1", "1 ", "a@", "eyJ", "+1-", "A1", "a.", "1.", ":", "sk-"])
@pytest.mark.parametrize("chars", [100_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_a_megabyte_of_anything_is_read_to_its_end(unit: str, chars: int) -> None:
    """A pattern that goes back over what it has read would take minutes for a tenth of it."""
    assert mask(f"{unit * (chars // len(unit))} ann@mail.example").endswith("[email]")
