import pytest

from tests.unit.tunery.runtime.step_clock import StepClock
from tunery.runtime.backoff import Backoff, every, retry

PAUSES = Backoff(100, 500)


class Flaky:
    """Raises a ConnectionError `failures` times, then returns how often it was called."""

    def __init__(self, failures: int) -> None:
        self.failures, self.calls = failures, 0

    async def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self.failures:
            raise ConnectionError(f"try {self.calls}")
        return self.calls


def test_pauses_double_up_to_their_limit_however_many_tries_there_were() -> None:
    assert [PAUSES.delay_ms(number) for number in (1, 2, 3, 4, 10_000)] == [
        100,
        200,
        400,
        500,
        500,
    ]
    assert [every(50).delay_ms(number) for number in (1, 9)] == [50, 50]


async def test_a_call_is_tried_until_it_works_with_pauses_on_the_given_clock() -> None:
    clock, failures = StepClock(), list[tuple[str, int]]()
    result = await retry(
        Flaky(3),
        (ConnectionError,),
        clock=clock,
        backoff=PAUSES,
        on_failure=lambda error, number: failures.append((str(error), number)),
    )
    assert (result, clock.slept_ms) == (4, [100, 200, 400])
    assert failures == [("try 1", 1), ("try 2", 2), ("try 3", 3)]


async def test_the_last_error_is_raised_after_the_last_try() -> None:
    clock = StepClock()
    with pytest.raises(ConnectionError, match="try 3"):
        await retry(Flaky(9), (ConnectionError,), clock=clock, backoff=PAUSES, tries_max=3)
    assert clock.slept_ms == [100, 200]


async def test_the_last_error_is_raised_once_the_time_is_up() -> None:
    clock = StepClock()
    with pytest.raises(ConnectionError, match="try 4"):
        await retry(Flaky(9), (ConnectionError,), clock=clock, backoff=PAUSES, elapsed_ms_max=700)
    assert clock.slept_ms == [100, 200, 400]


async def test_another_error_is_raised_at_once() -> None:
    flaky = Flaky(1)
    with pytest.raises(ConnectionError):
        await retry(flaky, (TimeoutError,), clock=StepClock(), backoff=PAUSES)
    assert flaky.calls == 1


async def test_an_exception_in_the_failure_callback_ends_the_retries() -> None:
    def give_up(error: Exception, _: int) -> None:
        raise PermissionError("not worth another try") from error

    with pytest.raises(PermissionError):
        await retry(
            Flaky(9), (ConnectionError,), clock=StepClock(), backoff=PAUSES, on_failure=give_up
        )
