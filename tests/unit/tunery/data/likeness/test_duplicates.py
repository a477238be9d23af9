"""Fingerprints of conversations, exact repeats, and counts of hashes."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.data.dialects.conversation import Conversation
from tunery.data.likeness.duplicates import BATCH_ROWS, DuplicateFinder, HashCounter, fingerprint

NUMBERS = st.integers(0, 2**64 - 1)


def conversation(*texts: str, system: str | None = None, **more: Any) -> Conversation:
    roles = ("user", "assistant")
    messages: list[dict[str, Any]] = [
        {"role": roles[number % 2], "content": text, **more} for number, text in enumerate(texts)
    ]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return Conversation(messages, [message["role"] == "assistant" for message in messages])


@pytest.mark.parametrize(
    "other",
    [
        conversation("WHAT  is\n it?", "Light."),
        conversation(" what is it?", "light.\t"),
        conversation("\uff37hat is it?", "Light."),
    ],
)
def test_case_white_space_and_forms_of_characters_leave_the_fingerprint(
    other: Conversation,
) -> None:
    assert fingerprint(other) == fingerprint(conversation("What is it?", "Light."))


@pytest.mark.parametrize(
    "other",
    [
        conversation("What is it? Light."),
        conversation("What is it?", "Light.", "More."),
        conversation("What is it?", "Light.", system="Be brief."),
        conversation("What is it?", "Light.", tool_calls=[{"id": "1"}]),
        conversation("What isit?", "Light."),
    ],
)
def test_other_messages_roles_and_calls_change_the_fingerprint(other: Conversation) -> None:
    assert fingerprint(other) != fingerprint(conversation("What is it?", "Light."))


def test_a_fingerprint_fits_64_bits_for_any_text() -> None:
    assert 0 <= fingerprint(conversation("\U0001f600 \ud800", "")) < 2**64
    assert 0 <= fingerprint(Conversation([], [])) < 2**64


def test_repeats_are_found_across_batches_and_system_messages_do_not_make_rows_alike() -> None:
    shared = "You answer questions about lanterns and nothing else. " * 20
    rows = [conversation(f"{n * n} {n}", f"{n}", system=shared) for n in range(BATCH_ROWS + 1)]
    with DuplicateFinder() as finder:
        numbers = [finder.add(row) for row in (*rows, rows[0])]
        clusters = finder.clusters()
    assert numbers == [fingerprint(row) for row in (*rows, rows[0])]
    assert clusters.equal.tolist() == [False] * len(rows) + [True]
    assert clusters.groups(10) == [[0, len(rows)]]


@given(st.lists(st.one_of(st.sampled_from((0, 1, 2**56, 2**64 - 1)), NUMBERS), max_size=30))
def test_numbers_are_counted_and_listed_from_the_smallest_up(numbers: list[int]) -> None:
    counter = HashCounter()
    for number in numbers:
        counter.add(number)
    assert list(counter.ascending()) == sorted(Counter(numbers).items())
    assert (counter.total, counter.distinct()) == (len(numbers), len(set(numbers)))
