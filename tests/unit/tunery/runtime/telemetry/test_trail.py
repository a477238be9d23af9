"""The request that work follows from: what is believed of a header, and how far it goes."""

import asyncio

import pytest

from tunery.runtime.telemetry.trail import (
    NO_TRAIL,
    Trail,
    current_trail,
    readable_traceparent,
    trail_context,
)

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{PARENT}-01"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        HEADER.upper(),
        HEADER + "\n",
        HEADER + "-more",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        "x" * 100_000,
    ],
)
def test_a_header_that_is_no_trace_counts_as_none(header: str | None) -> None:
    assert readable_traceparent(header) is None


def test_a_trail_names_the_request_and_the_trace() -> None:
    trail = Trail("req_1", readable_traceparent(HEADER))
    assert trail.fields() == {"request_id": "req_1", "trace_id": TRACE}


def test_what_no_request_led_to_names_none() -> None:
    assert Trail("7f0a-id-of-a-command").fields() == NO_TRAIL.fields() == {}


async def test_tasks_that_are_started_within_follow_from_the_same_request() -> None:
    async def work() -> Trail:
        await asyncio.sleep(0)
        return current_trail()

    with trail_context(Trail("req_1")):
        task = asyncio.create_task(work())
    assert current_trail() == NO_TRAIL
    assert await task == Trail("req_1")
