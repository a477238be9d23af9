"""Work that stands back rests while others work."""

import asyncio

import pytest

from tunery.platform import confined_workers
from tunery.platform.confined_workers import OTHERS_S, REST_S_MAX, Rests


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def work(rests: Rests, clock: Clock, tenant: str, niceness: int, took_s: float) -> None:
    with rests.working(tenant, niceness):
        clock.now_s += took_s


@pytest.mark.parametrize(("niceness", "rest_s"), [(0, 0.0), (5, 1.0), (15, 9.0), (19, 14.44)])
def test_work_rests_by_its_niceness_while_others_work(niceness: int, rest_s: float) -> None:
    clock = Clock()
    rests = Rests(clock)
    with rests.working("modest", 0):
        work(rests, clock, "greedy", niceness, 1.0)
        assert rests.due_s("greedy") == pytest.approx(rest_s)
        assert rests.due_s("modest") == 0
    clock.now_s += rest_s
    assert rests.due_s("greedy") == 0


def test_who_is_alone_does_not_rest_and_others_count_for_a_while() -> None:
    clock = Clock()
    rests = Rests(clock)
    work(rests, clock, "greedy", 15, 1.0)
    assert rests.due_s("greedy") == 0
    work(rests, clock, "modest", 0, 1.0)
    assert rests.due_s("greedy") == pytest.approx(8.0)
    clock.now_s += OTHERS_S
    assert rests.due_s("greedy") == 0


def test_work_at_the_same_time_adds_up_to_a_limit_and_is_forgotten() -> None:
    clock = Clock()
    rests = Rests(clock)
    with rests.working("modest", 0), rests.working("greedy", 15), rests.working("greedy", 15):
        clock.now_s += 0.5
    assert rests.due_s("greedy") == pytest.approx(9.0)
    with rests.working("modest", 0):
        work(rests, clock, "greedy", 15, 14.0)
        assert rests.due_s("greedy") == REST_S_MAX
    clock.now_s += 2 * REST_S_MAX
    assert rests.due_s("x") == 0
    assert (rests._ended_s, rests._until_s) == ({}, {})


async def test_a_tenant_that_waits_begins_when_others_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(confined_workers, "POLL_S", 0.001)
    monkeypatch.setattr(confined_workers, "OTHERS_S", 0.0)
    clock = Clock()
    rests = Rests(clock)
    with rests.working("modest", 0):
        work(rests, clock, "greedy", 15, 4.0)
        waiting = asyncio.create_task(rests.wait("greedy"))
        await asyncio.sleep(0.02)
        assert not waiting.done()
    await waiting


async def test_only_so_many_rest_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each of them holds a place, one is left for who need not rest."""
    monkeypatch.setattr(confined_workers, "POLL_S", 0.001)
    clock = Clock()
    rests = Rests(clock, resting_max=1)
    with rests.working("modest", 0):
        for tenant in ("greedy", "other"):
            work(rests, clock, tenant, 15, 4.0)
        waiting = asyncio.create_task(rests.wait("greedy"))
        await asyncio.sleep(0.01)
        await asyncio.wait_for(rests.wait("other"), 60)
        assert not waiting.done()
        clock.now_s += REST_S_MAX
        await waiting
