"""A failing plan gets as small as it can be while it still fails in the same way."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from simulator.engine.command_line import PLAYS_MAX, shrink, smaller
from simulator.engine.verdict import NOTHING_BROKEN, Verdict


class Weather(Struct, frozen=True):
    rain: int = 0
    storm: bool = False


class Plan(Struct, frozen=True):
    seed: int
    days: int = 0
    steps: tuple[int, ...] = ()
    weather: Weather = Weather()
    note: str = "kept"


@dataclass
class Game:
    """`judge` names the invariants that a plan violates."""

    judge: Callable[[Plan], list[str]]
    name: str = "game"
    played: list[Plan] = field(default_factory=list)

    def plan(self, seed: int) -> Plan:
        return Plan(seed)

    def play(
        self,
        plan: Any,
        trace: bool = False,
        broken: AbstractContextManager[Any] = NOTHING_BROKEN,
    ) -> Verdict:
        self.played.append(plan)
        return Verdict(violations=[f"{name}: seen" for name in self.judge(plan)])


def test_every_smaller_plan_lacks_one_thing_and_keeps_its_seed() -> None:
    plan = Plan(7, days=9, steps=(1, 2, 3), weather=Weather(rain=1, storm=True))
    candidates = list(smaller(plan))
    assert {candidate.seed for candidate in candidates} == {7}
    assert [candidate.days for candidate in candidates[:2]] == [0, 4]
    steps = [candidate.steps for candidate in candidates if candidate.steps != plan.steps]
    assert steps == [(1,), (2, 3), (2, 3), (1, 3), (1, 2)]
    weathers = [each.weather for each in candidates if each.weather != plan.weather]
    assert weathers == [Weather(rain=0, storm=True), Weather(rain=1, storm=False)]
    assert plan not in candidates


def test_an_empty_plan_has_no_smaller_one() -> None:
    assert list(smaller(Plan(7))) == []


def test_what_does_not_matter_is_left_out() -> None:
    game = Game(lambda plan: ["order"] if 3 in plan.steps and plan.weather.rain >= 2 else [])
    said: list[str] = []
    start = Plan(7, days=9, steps=(1, 2, 3, 4, 5), weather=Weather(rain=17, storm=True))
    assert shrink(game, start, said.append) == Plan(7, steps=(3,), weather=Weather(rain=2))
    assert said == []


def test_another_failure_does_not_count_as_the_same() -> None:
    game = Game(lambda plan: ["order"] if plan.days else ["money"])
    assert shrink(game, Plan(7, days=9), lambda _: None) == Plan(7, days=1)


def test_a_plan_that_holds_is_returned_as_it_is() -> None:
    plan = Plan(7, days=9)
    assert shrink(Game(lambda _: []), plan, lambda _: None) == plan


def test_the_search_ends_after_so_many_plays_and_says_so() -> None:
    start = Plan(7, steps=tuple(range(PLAYS_MAX)))
    game = Game(lambda plan: ["order"] if plan.steps == start.steps else [])
    said: list[str] = []
    assert shrink(game, start, said.append) == start
    assert len(game.played) == PLAYS_MAX + 1
    assert said == [f"game seed 7: not smaller within {PLAYS_MAX} plays"]
