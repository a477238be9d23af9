import logging

import pytest

from tunery.platform.bus.quiet import quieten
from tunery.runtime.telemetry.logs import log_event


def lines(caplog: pytest.LogCaptureFixture, logger: str) -> list[str]:
    return [
        " ".join(map(str, (record.getMessage(), *getattr(record, "fields", {}).values())))
        for record in caplog.records
        if record.name == logger
    ]


def test_repeated_lines_are_limited_and_critical_ones_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    quieten()
    logger = logging.getLogger("tunery.journal")
    for why in ("no route", "reset", "refused"):
        log_event(logger, logging.WARNING, "owner.log_unavailable", partition=1, why=why)
        log_event(logger, logging.CRITICAL, "partition.stopped", partition=1, why=why)
    log_event(logger, logging.WARNING, "owner.log_unavailable", partition=2, why="no route")
    assert lines(caplog, "tunery.journal") == [
        "owner.log_unavailable 1 no route",
        "partition.stopped 1 no route",
        "partition.stopped 1 reset",
        "partition.stopped 1 refused",
        "owner.log_unavailable 2 no route",
    ]


def test_client_lines_that_differ_only_in_arguments_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    quieten()
    logger = logging.getLogger("aiokafka.conn")
    for port in range(5):
        logger.error("test: unable to connect to %s", port)
    logger.info("never shown")
    assert lines(caplog, "aiokafka.conn") == ["test: unable to connect to 0"]
