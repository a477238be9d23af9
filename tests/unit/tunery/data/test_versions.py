"""Differences of two versions of a dataset."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tunery.data.versions import diff

Write = Callable[..., Path]


def pair(prompt: str, completion: str) -> dict[str, Any]:
    return {"prompt": prompt, "completion": completion}


def test_rows_added_removed_and_changed(write: Write) -> None:
    old = write([pair("One?", "1"), pair("Two?", "2"), pair("Three?", "3"), b"{"], "old.jsonl")
    new = write([pair("two?", " 2"), pair("One?", "uno"), pair("Four?", "4")], "new.jsonl")
    difference = diff(old, new)
    assert (difference.same, difference.changed, difference.removed, difference.added) == (
        1,
        ((1, 2),),
        (3,),
        (3,),
    )
    assert (difference.before.rows, difference.before.faulty, difference.after.faulty) == (4, 1, 0)
    assert difference.before.id == f"old.jsonl@{difference.before.sha256[:12]}"


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS, ROWS)
def test_counts_are_those_of_the_rows_as_a_bag(
    write: Write, before: list[tuple[str, str]], after: list[tuple[str, str]]
) -> None:
    old = write((pair(*row) for row in before), "old.jsonl")
    difference = diff(old, write((pair(*row) for row in after), "new.jsonl"))
    gone, come = Counter(before) - Counter(after), Counter(after) - Counter(before)
    asked = Counter(q for q, _ in gone.elements()) & Counter(q for q, _ in come.elements())
    assert difference.same == (Counter(before) & Counter(after)).total()
    assert difference.changed_count == asked.total()
    assert difference.removed_count == gone.total() - asked.total()
    assert difference.added_count == come.total() - asked.total()
    assert difference.is_empty == (Counter(before) == Counter(after))
