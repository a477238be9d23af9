"""The types of the five verbs: what is chosen where a service says nothing."""

from schemas.envelope import Message
from tunery.runtime.verbs import Effect, RetryLater, Send, no_deadline


class Ping(Message):
    """A body of a to-do row."""


async def run(_body: Ping, _tenant: str, _try_number: int = 1, /) -> Send | None:
    return None


def test_an_effect_without_a_schedule_of_its_own_pauses_longer_after_each_failure() -> None:
    effect = Effect("ping", Ping, run, lambda *_: None)
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


def test_a_state_without_deadlines_wants_no_tick() -> None:
    assert no_deadline(object()) is None
