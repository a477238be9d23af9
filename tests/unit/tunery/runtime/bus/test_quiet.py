import logging

import pytest

from tunery.runtime.bus.quiet import quieten


def said(caplog: pytest.LogCaptureFixture, logger: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == logger]


def test_a_line_comes_once_in_a_while_and_a_critical_one_always(
    caplog: pytest.LogCaptureFixture,
) -> None:
    quieten()
    logger = logging.getLogger("tunery.journal")
    for reason in ("no route", "reset", "refused"):
        logger.warning("%s/%d: %s: %s", "quiet", 1, "the log does not answer", reason)
        logger.critical("%s/%d: %s: %s", "quiet", 1, "stopped", reason)
    logger.warning("%s/%d: %s: %s", "quiet", 2, "the log does not answer", "no route")
    assert said(caplog, "tunery.journal") == [
        "quiet/1: the log does not answer: no route",
        "quiet/1: stopped: no route",
        "quiet/1: stopped: reset",
        "quiet/1: stopped: refused",
        "quiet/2: the log does not answer: no route",
    ]


def test_lines_of_the_client_are_told_apart_by_their_text_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    quieten()
    logger = logging.getLogger("aiokafka.conn")
    for port in range(5):
        logger.error("test: unable to connect to %s", port)
    logger.info("never shown")
    assert said(caplog, "aiokafka.conn") == ["test: unable to connect to 0"]
