"""The asynchronous client; `test_api.py` has what it shares with the one that is made of it."""

import httpx
import pytest

from tunery.client import ApiRefusal, AsyncApi, Unreachable


def served(*answers: httpx.Response) -> AsyncApi:
    left = list(answers)
    return AsyncApi("http://api/v1", "k", transport=httpx.MockTransport(lambda _: left.pop(0)))


def page(ids: list[str], has_more: bool) -> httpx.Response:
    data = [{"id": item} for item in ids]
    return httpx.Response(200, json={"data": data, "has_more": has_more, "last_id": ids[-1]})


async def test_lists_come_whole_page_after_page() -> None:
    async with served(page(["a", "b"], True), page(["c"], False)) as api:
        assert [job["id"] async for job in api.jobs()] == ["a", "b", "c"]


async def test_a_refusal_has_its_code() -> None:
    error = {"message": "no", "type": "t", "param": "p", "code": "not_found"}
    async with served(httpx.Response(404, json={"error": error})) as api:
        with pytest.raises(ApiRefusal) as refused:
            await api.job("gone")
    assert (refused.value.status, refused.value.code) == (404, "not_found")


async def test_an_address_without_a_server_is_unreachable() -> None:
    async with AsyncApi("http://127.0.0.1:1/v1", "k") as api:
        with pytest.raises(Unreachable):
            await api.jobs().__anext__()
