"""One trace and one request id of a job, from its HTTP request over a lost node to its bill."""

import asyncio
import json
import time
from typing import Final

import pytest

from tests.e2e.shared.guests import Guest
from tests.e2e.stories import AGENT_A, POLL_S
from tests.otlp import SpanReceiver

pytestmark = pytest.mark.timeout(900)

TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
HEADER: Final = f"00-{TRACE}-00f067aa0ba902b7-01"
SPANS_S_MAX: Final = 180
EXPECTED: Final = {
    ("tunery-gateway", "HTTP POST"),
    ("tunery-scheduler", "decide job"),
    ("tunery-scheduler", "decide pool"),
    ("tunery-trainer", "attempt train"),
    ("tunery-trainer", "start training"),
    ("tunery-trainer", "train"),
    ("tunery-trainer", "write checkpoint"),
    ("tunery-trainer", "store checkpoint"),
    ("tunery-trainer", "s3 put_object"),
    ("tunery-trainer", "attempt eval"),
    ("tunery-registry", "decide model"),
    ("tunery-billing", "decide account"),
}


async def test_observe_a_job_has_one_trace_and_one_request_id_from_http_to_its_bill(
    home: Guest, spans: SpanReceiver
) -> None:
    reply = await home.api.call(
        "POST",
        "/fine_tuning/jobs",
        json=home.request(n_epochs=6),
        headers={"traceparent": HEADER},
    )
    assert reply.is_success, reply.text
    job_id, request_id = reply.json()["id"], reply.headers["x-request-id"]
    await home.with_checkpoint(job_id)
    home.stack.kill(AGENT_A.name, tree=True)
    job = await home.api.ended(job_id)
    await home.bill(job_id)
    assert job["attempt"] >= 3  # a training before the kill and one after it, an evaluation
    assert await spans_missing(spans) == set()
    check_tree(spans, job_id)
    assert len(services_that_name(home, request_id)) >= 4


async def spans_missing(receiver: SpanReceiver) -> set[tuple[str, str]]:
    """Spans of the trace that are missing after at most SPANS_S_MAX."""
    deadline = time.monotonic() + SPANS_S_MAX
    while time.monotonic() < deadline:
        if receiver.names(TRACE) >= EXPECTED:
            break
        await asyncio.sleep(POLL_S)
    return EXPECTED - receiver.names(TRACE)


def check_tree(receiver: SpanReceiver, job_id: str) -> None:
    """The request is the client's, and attempts follow from spans that are there.

    Those that the killed agent had not sent yet are lost, and they are parents of some.
    """
    spans = receiver.of(TRACE)
    (request,) = (span for span in spans if span.name == "HTTP POST")
    assert request.parent_id == HEADER.split("-")[2]
    known = {span.span_id for span in spans}
    attempts = [span for span in spans if span.name.startswith("attempt")]
    assert {span.parent_id for span in attempts} <= known
    assert {span.attributes["tunery.job_id"] for span in attempts} == {job_id}


def services_that_name(home: Guest, request_id: str) -> set[str]:
    """Services with a log line of the request."""
    named = set()
    for log in home.stack.folders.logs.glob("*.log"):
        for line in log.read_text("utf-8", "replace").splitlines():
            if request_id in line and json.loads(line).get("request_id") == request_id:
                named.add(log.stem)
    return named
