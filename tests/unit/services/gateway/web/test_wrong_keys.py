"""Requests without a valid key have a limit (finding L2)."""

import pytest

from services.gateway.web import wrong_keys
from services.gateway.web.wrong_keys import PER_MINUTE, WrongKeys

pytestmark = pytest.mark.security


class Clock:
    us = 1_000_000

    def __call__(self) -> int:
        return self.us


def exhausted(clock: Clock, address: str = "192.0.2.1") -> WrongKeys:
    keys = WrongKeys(clock)
    for _ in range(PER_MINUTE):
        assert keys.limit(address, "Bearer wrong") is None
        keys.refused(address)
    return keys


def test_an_address_with_too_many_wrong_keys_has_to_wait() -> None:
    clock = Clock()
    keys = exhausted(clock)
    limit = keys.limit("192.0.2.1", "Bearer wrong")
    assert limit is not None
    assert (limit.limit, limit.remaining) == (PER_MINUTE, 0)
    assert 0 < limit.retry_ms <= 60_000 / PER_MINUTE
    assert keys.limit("192.0.2.2", "Bearer wrong") is None
    clock.us += 1_000 * limit.retry_ms
    assert keys.limit("192.0.2.1", "Bearer wrong") is None


def test_a_key_that_was_valid_is_not_held_up_by_others_of_its_address() -> None:
    keys = exhausted(Clock())
    assert keys.limit("192.0.2.1", "Bearer good") is not None
    keys.accepted("Bearer good")
    assert keys.limit("192.0.2.1", "Bearer good") is None
    assert keys.limit("192.0.2.1", None) is not None


def test_addresses_and_keys_that_are_remembered_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wrong_keys, "REMEMBERED_MAX", 2)
    keys = exhausted(Clock())
    for name in ("a", "b", "c"):
        keys.refused(name)
        keys.accepted(name)
    assert keys.limit("192.0.2.1", "b") is None  # forgotten
    assert (len(keys._full_at_us), len(keys._valid)) == (2, 2)
