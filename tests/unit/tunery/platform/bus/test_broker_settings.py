"""The table of brokers' settings: what is refused, what is only said, and with which fix."""

from pathlib import Path

import pytest

from tunery.platform.bus.broker_settings import (
    EMBEDDED_SESSION_MS,
    SESSION_MS,
    SETTINGS,
    embedded_lines,
    guide_table,
    violations,
)

STOCK = {row.name: row.default or None for row in SETTINGS}
EMBEDDED = dict(line.split("=") for line in embedded_lines().splitlines())


def test_review2_p1_brokers_with_their_own_settings_have_all_that_is_needed() -> None:
    unfit = violations(STOCK, 1, SESSION_MS, 3)
    assert [violation.name for violation in unfit if violation.required] == []
    assert {violation.name for violation in unfit} == {
        "auto.create.topics.enable",
        "authorizer.class.name",
    }


def test_review2_p1_what_tunery_up_writes_fits_the_table_with_its_shorter_session() -> None:
    embedded = {**STOCK, **EMBEDDED, "authorizer.class.name": "an.Authorizer"}
    assert violations(embedded, 1, EMBEDDED_SESSION_MS, 1) == []


@pytest.mark.parametrize(
    ("name", "value", "session_ms", "brokers", "fix"),
    [
        ("group.min.session.timeout.ms", "6000", 3_000, 3, "TUNERY_SESSION_TIMEOUT_MS=6000"),
        ("group.min.session.timeout.ms", "20000", SESSION_MS, 3, "TUNERY_SESSION_TIMEOUT_MS=20000"),
        ("group.max.session.timeout.ms", "9000", SESSION_MS, 3, "TUNERY_SESSION_TIMEOUT_MS=9000"),
        ("group.initial.rebalance.delay.ms", "60000", SESSION_MS, 3, "delay.ms=3000"),
        ("group.coordinator.rebalance.protocols", "consumer", SESSION_MS, 3, "consumer,classic"),
        ("offsets.topic.replication.factor", "3", SESSION_MS, 1, "start 3 brokers"),
        ("log.cleaner.enable", "false", SESSION_MS, 3, "log.cleaner.enable=true"),
        ("socket.request.max.bytes", "1048576", SESSION_MS, 3, "max.bytes=8388608"),
    ],
)
def test_review2_p1_what_cannot_work_is_named_with_the_setting_and_the_fix(
    name: str, value: str, session_ms: int, brokers: int, fix: str
) -> None:
    unfit = violations({**STOCK, name: value}, 7, session_ms, brokers)
    [violation] = [violation for violation in unfit if violation.required]
    assert violation.name == name
    assert violation.text.startswith(f"broker 7: {name} is {value}")
    assert fix in violation.fix


def test_a_setting_that_a_broker_does_not_show_is_not_judged() -> None:
    assert violations({"log.cleaner.enable": None}, 1, SESSION_MS, 3) == []
    assert violations({}, 1, 1, 1) == []


def test_review2_p1_the_guide_has_the_table() -> None:
    """After a change: replace what is between the two comments by `guide_table()`."""
    guide = Path("docs/how-to/secure-kafka.md").read_text(encoding="utf-8")
    _, _, behind = guide.partition("broker_settings.py -->\n")
    assert behind.partition("\n<!-- end of brokers -->")[0] == guide_table()
