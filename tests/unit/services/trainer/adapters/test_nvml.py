"""Faults of devices that the driver reports, and states that are no faults."""

from threading import Event

import pytest

from services.trainer.adapters.nvml import ANSWER_S_MAX, SLOW_S, DeviceWatch, Slowness, within
from services.trainer.ports import DeviceUse
from tests.unit.services.trainer.adapters.eight_devices import EightDevices

HW_THERMAL, SW_POWER_CAP = 0x40, 0x4


def watch(driver: EightDevices, **parts: object) -> DeviceWatch:
    return DeviceWatch([state.name for state in driver.states], **parts)  # type: ignore[arg-type]  # of any part


def codes(watched: DeviceWatch) -> dict[int, str]:
    watched.look()
    return {number: reason.code for number, reason in watched.faults().items()}


def test_devices_with_faults_differ_from_those_that_work(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = EightDevices().install(monkeypatch)
    watched = watch(driver)
    assert codes(watched) == {}
    driver.states[1].errors = 1
    driver.states[2].rows_failed = 1
    driver.states[4].lost = True
    driver.states[6].mig = 1
    assert codes(watched) == {1: "ecc", 2: "ecc", 4: "unreachable", 6: "partitioned"}
    driver.states[6].mig = 0
    assert 6 not in codes(watched)


def test_devices_say_how_busy_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = EightDevices(count=3).install(monkeypatch)
    driver.states[0].busy, driver.states[0].used_bytes = 97, 5_000
    driver.states[1].busy = None
    driver.states[2].lost = True
    watched = watch(driver)
    watched.look()
    assert watched.use() == {0: DeviceUse(97, 5_000)}


def test_devices_have_faults_of_their_own_and_not_those_of_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenant's bug must not take a device out of service."""
    driver = EightDevices().install(monkeypatch)
    watched = watch(driver)
    driver.xids.extend([(0, 13), (0, 31), (0, 43), (3, 79), (3, 48), (5, 94)])
    events = watched.subscribe()
    for _ in range(7):
        watched.await_xid(events, wait_ms=0)
    assert codes(watched) == {3: "xid", 5: "xid"}
    assert watched.faults()[3].params == {"xid": 79}, "the first is told; it stays"


def test_devices_are_slow_after_a_minute_and_for_a_minute_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver, now = EightDevices().install(monkeypatch), [1_000.0]
    watched = watch(driver, clock=lambda: now[0])
    driver.states[0].slowed = SW_POWER_CAP  # that is how they always run
    driver.states[1].slowed = HW_THERMAL
    assert codes(watched) == {}
    now[0] += SLOW_S
    assert codes(watched) == {1: "throttled"}
    driver.states[1].slowed = 0
    now[0] += SLOW_S - 1
    assert codes(watched) == {1: "throttled"}
    now[0] += 1
    assert codes(watched) == {}


def test_a_moment_of_slowness_is_no_fault_however_often() -> None:
    slowness = Slowness()
    assert not any(slowness.note(bool(at % 3), float(at * 20)) for at in range(60))


def test_devices_of_a_driver_that_hangs_get_no_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, now = EightDevices(count=2).install(monkeypatch), [0.0]
    watched = watch(driver, clock=lambda: now[0])
    watched.look()
    now[0] += ANSWER_S_MAX
    assert {reason.code for reason in watched.faults().values()} == {"driver_silent"}
    assert codes(watched) == {}


def test_a_call_that_hangs_is_left_behind() -> None:
    never = Event()
    with pytest.raises(TimeoutError, match="has not answered"):
        within(0.01, never.wait)
    never.set()


def test_devices_an_error_of_the_driver_is_no_hang() -> None:
    with pytest.raises(ZeroDivisionError):
        within(10, lambda: 1 // 0)


def test_devices_are_watched_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = EightDevices().install(monkeypatch)
    driver.states[7].lost = True
    watched = watch(driver)
    watched.start()
    assert set(watched.faults()) == {7}, "before the first lease"
