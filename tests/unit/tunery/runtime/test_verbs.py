"""The types of the five verbs: what is chosen where a service says nothing."""

from schemas.envelope import Message
from schemas.streams import GLOBAL
from tunery.runtime.verbs import Effect, RetryLater, Send, TimedPart, deadlines_by_key


class Ping(Message):
    """A body of a to-do row."""


async def run(_body: Ping, _tenant: str, _try_number: int = 1, /) -> Send | None:
    return None


def test_an_effect_without_a_schedule_of_its_own_pauses_longer_after_each_failure() -> None:
    effect = Effect("ping", Ping, run)
    pauses = [effect.delay_ms(tries) for tries in range(1, effect.tries_max + 1)]
    assert pauses == sorted(pauses)
    assert pauses[0] > 0
    assert effect.delay_ms(1_000) <= 60_000


def test_a_later_try_keeps_its_reason_and_the_pause_that_was_asked_for() -> None:
    assert (str(RetryLater("busy", 30_000)), RetryLater("busy", 30_000).delay_ms_min) == (
        "busy",
        30_000,
    )
    assert RetryLater("busy").delay_ms_min == 0


def test_a_global_record_may_change_the_deadlines_of_all_keys() -> None:
    deadlines = deadlines_by_key(dict[str, int].keys, dict[str, int].get)
    state = {"a": 3, "b": 5}
    assert list(deadlines.changed(state, "a", None)) == [TimedPart("a")]
    assert list(deadlines.changed(state, GLOBAL, None)) == [TimedPart("a"), TimedPart("b")]
    assert deadlines.at(state, TimedPart("b")) == 5
    assert deadlines.at(state, TimedPart("c")) is None
