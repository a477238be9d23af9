"""The pool of the benchmark is full, and stays so."""

import pytest

from bench.full_pool import SLOTS, FullPool
from schemas.pool import ForgetWork
from simulator.control_plane.samples import request


def test_freed_slots_are_granted_to_what_waits() -> None:
    pool = FullPool(1)
    for number in range(20):
        pool.wait(number)
    ended, forgotten, freed = pool.next_end()
    assert not any("Granted" in type(event).__name__ for event in pool.decide(ended))
    pool.send(ended)
    pool.send(forgotten)
    (_, granted) = pool.decide(freed)
    assert type(granted).__name__ == "LeaseGranted"
    assert isinstance(forgotten, ForgetWork)
    assert len(granted.members[0].devices) == 1 < SLOTS


def test_what_the_scheduler_refuses_is_no_measurement() -> None:
    with pytest.raises(ValueError, match="is refused"):
        FullPool(1).decide(request(slots=0))
