import asyncio
import io
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tunery.runtime.telemetry.logs import JsonFormatter, log_context, log_event, subject_of
from tunery.runtime.telemetry.trail import Trail, trail_context


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def logger(out: io.StringIO) -> logging.Logger:
    logger = logging.Logger("tunery.test")
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonFormatter("eval", ("hunter2hunter2", "")))
    logger.addHandler(handler)
    return logger


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_line_is_one_object_that_begins_with_its_event(
    logger: logging.Logger, out: io.StringIO
) -> None:
    log_event(logger, logging.INFO, "process.ready", hosts="a, b", count=3, nothing=None)
    assert out.getvalue().startswith(
        '{"event":"process.ready","service":"eval","level":"info","at":"'
    )
    (line,) = lines(out)
    assert (line["hosts"], line["count"], line["nothing"]) == ("a, b", 3, None)


def test_an_error_comes_with_its_trace_and_without_secrets(
    logger: logging.Logger, out: io.StringIO
) -> None:
    try:
        raise ConnectionError("postgres://u:hunter2hunter2@host\nsecond line")
    except ConnectionError as error:
        log_event(logger, logging.ERROR, "host.failed", error, why=error, key=b"x")
    (line,) = lines(out)
    assert line["error"] == "ConnectionError"
    assert "Traceback" in line["trace"]
    assert line["why"] == "postgres://u:***@host\nsecond line"
    assert "hunter2" not in out.getvalue()


def test_long_texts_are_cut(logger: logging.Logger, out: io.StringIO) -> None:
    log_event(logger, logging.INFO, "x" * 10_000, field="y" * 10_000)
    (line,) = lines(out)
    assert len(line["event"]) == len(line["field"]) == 4_001


async def test_lines_of_a_job_carry_its_context_also_those_of_tasks_started_for_it(
    logger: logging.Logger, out: io.StringIO
) -> None:
    async def renew() -> None:
        log_event(logger, logging.WARNING, "row_lease.not_renewed", attempt=3)

    with log_context(job_id="job-1", tenant="acme", attempt=2):
        with log_context(kind="validate"):
            logger.warning("a library's line")
        task = asyncio.create_task(renew())
    await task
    log_event(logger, logging.INFO, "host.ready")
    library, renewal, after = lines(out)
    assert (library["job_id"], library["tenant"], library["kind"]) == ("job-1", "acme", "validate")
    assert (renewal["job_id"], renewal["attempt"], "kind" in renewal) == ("job-1", 3, False)
    assert "job_id" not in after


def test_the_subject_of_a_message_is_its_job_and_attempt() -> None:
    assert subject_of(SimpleNamespace(job_id="job-1", attempt=2, body="x")) == {
        "job_id": "job-1",
        "attempt": 2,
    }
    assert subject_of(SimpleNamespace(file_id="f")) == {}


def test_a_line_names_the_request_and_the_trace_that_it_follows_from(
    logger: logging.Logger, out: io.StringIO
) -> None:
    traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    with trail_context(Trail("req_1", traceparent)):
        logger.warning("a library's line")
    logger.warning("after it")
    within, after = lines(out)
    assert within["request_id"] == "req_1"
    assert within["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert not {"request_id", "trace_id"} & after.keys()
