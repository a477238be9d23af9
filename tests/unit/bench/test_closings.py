"""Benchmark of month closings: its counts, and the time that it gives a broker."""

from bench.closings import MonthTurn, ShiftedClock, broker_with
from schemas.account import TenantResumed
from schemas.prepaid import PrepaidExpired
from schemas.units import DAY_MS
from tunery.platform.bus import kafka_producer, kafka_reader
from tunery.runtime.hosts.owner import Settled


def test_a_month_has_turned_once_everything_has_happened_to_each_tenant() -> None:
    turn = MonthTurn()
    expired = PrepaidExpired(reference="bench", amount_micro=1)
    turn.note(Settled("account", 3, 0, "c1", (expired, TenantResumed()), 0))
    assert turn.counts == {"expired": 1}
    assert turn.figures()["expired"] == 1
    assert turn.is_complete(0)
    assert not turn.is_complete(1)


def test_the_brokers_time_is_as_far_ahead_as_the_clock() -> None:
    clock = ShiftedClock()
    clock.ahead_ms = DAY_MS
    with broker_with(clock):
        assert vars(kafka_producer)["Appended"](1, 5).timestamp == DAY_MS + 5
        assert vars(kafka_reader)["Record"](0, 1, 5, b"k", b"v") == (0, 1, DAY_MS + 5, b"k", b"v")
    assert vars(kafka_producer)["Appended"](1, 5).timestamp == 5
