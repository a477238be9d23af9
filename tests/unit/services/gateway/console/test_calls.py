"""Calls inside the process: streamed both ways, refused in the API's words, closed when left."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from services.gateway.console.calls import CallRefused, Calls, client_of

CLOSED = asyncio.Event()
LEFT = asyncio.Event()


async def echo(request: Request) -> Response:
    return Response(await request.body(), headers={"x-client": str(request.client)})


async def endless(_: Request) -> Response:
    async def chunks() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"tick"
                await asyncio.sleep(0.01)
        finally:
            CLOSED.set()

    return StreamingResponse(chunks())


async def fast(_: Request) -> Response:
    async def chunks() -> AsyncIterator[bytes]:
        while True:
            yield b"tick"

    return StreamingResponse(chunks())


async def slow(_: Request) -> Response:
    try:
        await asyncio.sleep(60)
    finally:
        LEFT.set()
    return Response()


async def refuse(_: Request) -> Response:
    return JSONResponse({"error": {"message": "No.", "code": "no"}}, 409)


async def fail(_: Request) -> Response:
    raise ValueError("broken")


ROUTES = [
    Route("/echo", echo, methods=["POST"]),
    Route("/endless", endless),
    Route("/fast", fast),
    Route("/slow", slow),
    Route("/refuse", refuse),
    Route("/fail", fail),
]


@pytest.fixture(name="calls")
def calls_of_an_application() -> Calls:
    return Calls(client_of(Starlette(routes=ROUTES)), "key", {"client": ("10.0.0.7", 1)})


async def test_a_body_arrives_in_parts_with_the_address_of_its_browser(calls: Calls) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"one "
        yield b"two"

    response = await calls.send("POST", "/echo", content=parts())
    assert response.content == b"one two"
    assert "10.0.0.7" in response.headers["x-client"]
    assert [(call.method, call.path, call.status) for call in calls.requests] == [
        ("POST", "/echo", 200)
    ]


async def test_a_stream_that_is_left_ends_in_the_application(calls: Calls) -> None:
    async with calls.stream("GET", "/endless") as response:
        assert await anext(response.aiter_raw()) == b"tick"
    await asyncio.wait_for(CLOSED.wait(), 60)


async def test_a_stream_that_is_left_with_parts_unread_ends(calls: Calls) -> None:
    async with asyncio.timeout(180), calls.stream("GET", "/fast") as response:
        assert await anext(response.aiter_raw()) == b"tick"
        await asyncio.sleep(0.05)  # until more parts wait than the queue takes


async def test_a_call_that_is_left_before_its_response_ends_in_the_application(
    calls: Calls,
) -> None:
    call = asyncio.create_task(calls.get("/slow"))
    await asyncio.sleep(0.05)
    call.cancel()
    assert await asyncio.wait_for(LEFT.wait(), 60)


async def test_a_refusal_has_the_words_of_the_api(calls: Calls) -> None:
    with pytest.raises(CallRefused, match="No\\.") as refused:
        await calls.get("/refuse")
    assert (refused.value.status, refused.value.code) == (409, "no")


async def test_a_failure_of_the_application_is_refused_with_its_status(calls: Calls) -> None:
    with pytest.raises(CallRefused) as refused:
        await calls.get("/fail")
    assert refused.value.status == 500
