"""Questions to a guard, and the two forms of its answers."""

import pytest

from tunery.benchmarks.guard import TEXT_MAX, GuardVerdict, guard_request, guard_verdict


def test_a_conversation_is_sent_and_bounded() -> None:
    body = guard_request("guard-1", "How?" + "x" * TEXT_MAX, "So.")
    assert [message["role"] for message in body["messages"]] == ["user", "assistant"]
    assert len(body["messages"][0]["content"]) == TEXT_MAX
    assert (body["model"], body["temperature"]) == ("guard-1", 0)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("safe", GuardVerdict(harmful=False)),
        ("\n\nunsafe\nS1,S9", GuardVerdict(harmful=True)),
        (
            "Safety: Unsafe\nCategories: Violent\nRefusal: No",
            GuardVerdict(harmful=True, refusal=False),
        ),
        ("Safety: Safe\nCategories: None\nRefusal: Yes", GuardVerdict(False, refusal=True)),
        ("Safety: Controversial", GuardVerdict(False)),
        ("Safety: perhaps", None),
        ("I think it is fine", None),
        ("", None),
    ],
)
def test_both_forms_are_understood(text: str, verdict: GuardVerdict | None) -> None:
    assert guard_verdict(text) == verdict
