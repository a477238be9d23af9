"""An operator's endpoint over HTTP: tried again while that helps, bounded, its key kept."""

from collections.abc import Callable

import pytest

from tests.score_models import KEY, Judge, Reply, judging, said
from tunery.platform.chat_endpoint import ANSWER_BYTES_MAX, ChatEndpoint, EndpointError

BODY = {"model": "judge", "messages": [{"role": "user", "content": "?"}]}


def in_turn(*replies: Reply) -> Callable[[str], Reply]:
    """Each once; the last one is repeated."""
    left = list(replies)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


async def refusal(judge: Judge) -> EndpointError:
    with pytest.raises(EndpointError) as refused:
        await judge.endpoint().complete(BODY)
    assert KEY not in str(refused.value)
    return refused.value


async def test_a_busy_endpoint_is_asked_again() -> None:
    with judging(in_turn((503, {}), (429, {}), said("1"))) as judge:
        answer = await judge.endpoint().complete(BODY)
    assert answer["choices"][0]["message"]["content"] == "1"
    assert [body["path"] for body in judge.asked] == ["/v1/chat/completions"] * 3
    assert judge.keys == {f"Bearer {KEY}"}


async def test_an_endpoint_that_stays_busy_is_named_and_one_that_refuses_is_asked_once() -> None:
    with judging(in_turn((503, {"error": KEY}))) as judge:
        error = await refusal(judge)
        assert (str(error), error.status) == ("the endpoint answered 503", 503)
        assert len(judge.asked) == 3
    with judging(in_turn((401, {"error": KEY}))) as judge:
        assert (await refusal(judge)).status == 401
        assert len(judge.asked) == 1


async def test_an_endpoint_that_is_gone_or_slow_did_not_answer() -> None:
    with judging(in_turn(said("1"))) as judge:
        pass
    assert (await refusal(judge)).status is None
    with judging(in_turn(said("1"))) as judge:
        slow = ChatEndpoint(judge.url, None, timeout_s=1e-6, tries_max=1, pause_s=0, at_once_max=1)
        with pytest.raises(EndpointError, match="did not answer in 1e-06 s"):
            await slow.complete(BODY)


async def test_what_is_too_long_or_no_json_is_no_answer() -> None:
    with judging(in_turn((200, "x" * (ANSWER_BYTES_MAX + 1)))) as judge:
        assert f"more than {ANSWER_BYTES_MAX} bytes" in str(await refusal(judge))
    with judging(in_turn((200, "no json"))) as judge:
        assert str(await refusal(judge)) == "the endpoint's answer is no JSON"
        assert len(judge.asked) == 1
