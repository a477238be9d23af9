import asyncio
import io
import json
import logging
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from services.gateway.settings import GatewaySettings
from services.notifier.settings import NotifierSettings
from services.trainer.settings import TrainerSettings
from tunery.platform.settings import hide_secret, load
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


@pytest.mark.parametrize(
    "secret", ['pa"ss-word-1', "back\\slash-77", "Grüße-geheim", "a/b+c=&d", "tab\there", "5hort"]
)
def test_review2_p3_no_spelling_of_a_secret_is_shown(secret: str, out: io.StringIO) -> None:
    logger = logging.Logger("tunery.test")
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonFormatter("eval", (secret,)))
    logger.addHandler(handler)
    try:
        raise ConnectionError(f"http://u:{quote(secret, safe='')}@host", [secret])
    except ConnectionError as error:
        log_event(
            logger, logging.ERROR, f"login with {secret}", error, why=error, all={"k": secret}
        )
    logger.warning("x" * (4_000 - len(secret) // 2) + secret)  # cut in the middle of the secret
    for line in lines(out):
        for value in line.values():
            assert secret not in value
            assert secret[: len(secret) // 2] not in value


def test_first_hour2_u2_names_of_services_and_loggers_are_never_blackened(out: io.StringIO) -> None:
    logger = logging.Logger("tunery.gateway")
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonFormatter("gateway", ("gateway", "tunery", "event")))
    logger.addHandler(handler)
    log_event(logger, logging.INFO, "process.ready", event_count=1)
    (line,) = lines(out)
    assert (line["service"], line["logger"], line["event_count"]) == (
        "gateway",
        "tunery.gateway",
        1,
    )


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


def test_review2_p3_secrets_that_are_read_later_are_hidden_too(
    out: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only secrets of every service were hidden, not the mail server's password and score keys."""
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonFormatter("notifier"))
    monkeypatch.setattr(logging.root, "handlers", [handler])
    monkeypatch.setenv("TUNERY_NOTIFIER_SMTP_URL", "smtps://ada:s3cret-pass@mail.example.com")
    monkeypatch.setenv("TUNERY_GATEWAY_SCORE_KEY", "sk-score-1")
    monkeypatch.setenv("TUNERY_NODE_SCORE_KEY", "sk-node-1")
    load(NotifierSettings)
    load(GatewaySettings)
    load(TrainerSettings)
    hide_secret("smtps://ada:from-a-file-9@mail.example.com")
    hide_secret("password")  # a word: every line about passwords would be blackened
    text = "ada:s3cret-pass@mail sk-score-1 sk-node-1 from-a-file-9 password"
    log_event(logging.getLogger("tunery.test"), logging.ERROR, "mail.failed", why=text)
    (line,) = lines(out)
    assert line["why"] == "ada:***@mail *** *** *** password"
