"""When the owner of a partition sends ticks, and what it costs to know that."""

import random
from collections.abc import Callable

from immutables import Map
from msgspec.structs import replace

from schemas.account import PeriodEnded
from schemas.envelope import GENESIS, Entry, Reason, Rejected, Repeated
from schemas.streams import GLOBAL
from schemas.units import Ms
from services.billing.app import ACCOUNTS
from services.billing.domain.state import INITIAL as NO_ACCOUNTS
from services.billing.domain.state import AccountState
from simulator.control_plane.samples import T0
from tests.ticks import next_tick
from tests.unit.services.billing.domain.test_plans import STANDARD
from tunery.runtime.hosts.tick_schedule import TickSchedule
from tunery.runtime.ids import new_id
from tunery.runtime.journal.ports import HostLimits
from tunery.runtime.verbs import Deadlines, deadlines_by_key

LIMITS = HostLimits()
Moments = Map[str, Ms]
CHANGED = (Repeated(of="a command"),)  # any event: what it says does not matter here
BY_KEY: Deadlines[Moments] = deadlines_by_key(Moments.keys, Moments.get)


def schedule(state: Moments, limits: HostLimits = LIMITS) -> TickSchedule[Moments]:
    return TickSchedule(BY_KEY, state, limits, new_id)


def entry(key: str, at: Ms, command_id: str = "") -> Entry:
    return Entry(
        epoch=0,
        cause=0,
        prev=GENESIS,
        at=at,
        command_id=command_id or new_id(),
        key=key,
        tenant=key,
        seq=1,
    )


def test_a_tick_is_due_once_and_again_a_moment_after_it_had_an_effect() -> None:
    state = Map(a=5, b=9)
    ticks = schedule(state)
    assert (ticks.earliest(), ticks.take_due(state, 4)) == (5, {})
    (command_id,) = ticks.take_due(state, 5).values()
    assert ticks.take_due(state, 6) == {}, "it is on its way"
    ticks.note(state, entry("a", 7, command_id), CHANGED)
    assert ticks.take_due(state, 8).keys() == set()
    assert ticks.take_due(state, 7 + LIMITS.tick_again_ms).keys() == {"b", "a"}


def test_a_tick_without_effect_is_not_sent_again_at_once() -> None:
    rejected = Rejected(code="illegal_state", reason=Reason(code="erased"))
    for events in ((), (rejected,)):
        state = Map(a=5)
        ticks = schedule(state)
        (command_id,) = ticks.take_due(state, 5).values()
        ticks.note(state, entry("a", 5, command_id), events)
        for at in range(6, 5 + LIMITS.tick_every_ms, 100):
            ticks.note(state, entry("a", at), CHANGED)  # other commands of the key
            assert ticks.take_due(state, at) == {}
        assert ticks.take_due(state, 5 + LIMITS.tick_every_ms).keys() == {"a"}


def test_a_tick_that_is_not_decided_is_sent_again() -> None:
    state = Map(a=5)
    ticks = schedule(state)
    first = ticks.take_due(state, 5)
    assert ticks.take_due(state, 4 + LIMITS.tick_lost_ms) == {}
    second = ticks.take_due(state, 5 + LIMITS.tick_lost_ms)
    assert second.keys() == {"a"}
    ticks.note(state, entry("a", 20_000, first["a"]), CHANGED)
    assert ticks.take_due(state, 20_000) == {}, "the second is on its way"


def test_deadlines_that_move_and_vanish_are_seen() -> None:
    state = Map(a=5, b=9, c=12)
    ticks = schedule(state)
    state = state.set("c", 2)
    ticks.note(state, entry("c", 1), CHANGED)
    assert ticks.earliest() == 2
    state = state.set("c", 50).delete("a")  # nothing says so
    assert ticks.take_due(state, 8) == {}
    assert ticks.earliest() == 9
    state = Map(d=1, b=3)
    ticks.note(state, entry(GLOBAL, 8), CHANGED)
    assert ticks.take_due(state, 8).keys() == {"d", "b"}


def test_only_so_many_ticks_are_on_their_way() -> None:
    state = Map({f"k{n:02}": n for n in range(20)})
    ticks = schedule(state, HostLimits(ticks_max=8))
    sent = ticks.take_due(state, 100)
    assert list(sent) == [f"k{n:02}" for n in range(8)]
    assert ticks.take_due(state, 100) == {}
    for key in ("k00", "k01"):
        state = state.delete(key)
        ticks.note(state, entry(key, 101, sent[key]), CHANGED)
    assert list(ticks.take_due(state, 101)) == ["k08", "k09"]


def test_review2_e3_the_schedule_agrees_with_a_look_at_all_keys() -> None:
    """Random changes, postponements and ticks; the decider of each tick moves its deadline on."""
    for seed in range(50):
        draw = random.Random(seed)
        state: Moments = Map()
        ticks = schedule(state, HostLimits(ticks_max=5))
        at, on_the_way = 0, dict[str, str]()
        for _ in range(200):
            at += draw.randrange(200)
            key = f"k{draw.randrange(12)}"
            state = _changed(state, key, at, draw.random, draw.randrange)
            ticks.note(state, entry(key, at), CHANGED)
            on_the_way |= ticks.take_due(state, at)
            for late in [key for key in on_the_way if draw.random() < 0.3]:
                state = state.set(late, at + draw.randrange(1, 5_000))
                ticks.note(state, entry(late, at, on_the_way.pop(late)), CHANGED)
        for _ in range(200):  # all that is due gets its tick in the end
            at += LIMITS.tick_every_ms
            for key, command_id in (on_the_way | ticks.take_due(state, at)).items():
                state = state.set(key, at + 10**9)
                ticks.note(state, entry(key, at, command_id), CHANGED)
            on_the_way.clear()
        assert all(moment > at for moment in state.values()), seed


def _changed(
    state: Moments, key: str, at: Ms, chance: Callable[[], float], below: Callable[[int], int]
) -> Moments:
    if chance() < 0.2:
        return state.delete(key) if key in state else state
    return state.set(key, max(0, at + below(3_000) - 500))


def test_review2_e3_a_months_end_of_12500_tenants_costs_each_of_them_a_few_looks() -> None:
    """All of a partition: once it took a second and a pass over all tenants for each."""
    tenants = {
        f"t{n}": AccountState(terms=STANDARD, period="2026-11", closes_at=T0 + n)
        for n in range(12_500)
    }
    state = replace(NO_ACCOUNTS, tenants=Map(tenants))
    assert ACCOUNTS.deadlines is not None
    ticks = TickSchedule(ACCOUNTS.deadlines, state, LIMITS, new_id)
    built = ticks.visits
    at, rounds, ended = T0 + 20_000, 0, 0
    while due := ticks.take_due(state, at):
        rounds += 1
        assert len(due) <= LIMITS.ticks_max
        for key, command_id in due.items():
            ended += 1
            tenant = replace(state.tenants[key], closes_at=None)
            state = replace(state, tenants=state.tenants.set(key, tenant))
            ticks.note(state, entry(key, at, command_id), (_ended(),))
    assert (built, ended, next_tick(ACCOUNTS, state)) == (12_500, 12_500, None)
    assert rounds == -(-12_500 // LIMITS.ticks_max)
    assert ticks.visits - built <= 3 * ended


def _ended() -> PeriodEnded:
    return PeriodEnded(period="2026-11", soft_gpu_ms=1, before=None)
