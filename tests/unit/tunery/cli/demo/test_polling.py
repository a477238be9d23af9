"""Polling ends with the first answer that is accepted, or with the last one that was not."""

import pytest

from tunery.cli.demo import polling
from tunery.cli.demo.polling import DeadlineExceeded, poll_until


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "POLL_S", 0.001)


class Answers:
    """1, 2, 3 …, one for each request."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> int:
        self.count += 1
        return self.count


async def test_the_first_accepted_answer_is_the_result() -> None:
    answers = Answers()
    assert await poll_until(answers, lambda number: number >= 3, 1) == 3
    assert answers.count == 3


async def test_the_last_answer_is_shown_when_the_time_is_over() -> None:
    with pytest.raises(DeadlineExceeded, match=r"not done after 0 s; the last answer: 5$"):
        await poll_until(Answers(), lambda _: False, 0.005)


async def test_it_is_asked_at_least_once() -> None:
    assert await poll_until(Answers(), lambda _: True, 0) == 1
    with pytest.raises(DeadlineExceeded, match="the last answer: 1"):
        await poll_until(Answers(), lambda _: False, 0)
