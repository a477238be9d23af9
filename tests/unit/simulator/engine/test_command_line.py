"""The simulator's command line, with a scenario that fails when its plan says so."""

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from simulator.engine.command_line import main, shrink, smaller
from simulator.engine.verdict import NOTHING_BROKEN, Verdict


class Weather(Struct, frozen=True):
    rain: int = 0
    storms: tuple[str, ...] = ()


class Plan(Struct, frozen=True):
    seed: int
    weather: Weather = Weather()
    guests: int = 8
    night: bool = False


@dataclass(frozen=True)
class Picnic:
    """Fails for seeds that divide by 5: a storm from the north, and more than two guests."""

    name: str = "picnic"

    def plan(self, seed: int) -> Plan:
        storms = ("east", "north", "west") if seed % 5 == 0 else ("east",)
        return Plan(seed, Weather(rain=seed, storms=storms), guests=9, night=True)

    def play(
        self,
        plan: Plan,
        trace: bool = False,
        broken: AbstractContextManager[Any] = NOTHING_BROKEN,
    ) -> Verdict:
        if plan.seed == 13:
            raise ValueError("the scenario failed")
        wet = "north" in plan.weather.storms and plan.guests > 2
        return Verdict(
            violations=["dry: all are wet"] if wet else [],
            voided=1,
            faults={"storm": len(plan.weather.storms)},
            counts={"guests": plan.guests},
            trace=["a line"] if trace else [],
        )


def report(out: str) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(out.splitlines()[-1])
    return summary


def test_a_plan_shrinks_to_what_it_fails_with() -> None:
    summary = shrink(Picnic(), Picnic().plan(10), lambda _: None)
    assert summary == Plan(10, Weather(0, ("north",)), guests=4, night=False)
    # halves of 4 do not fail any more
    assert all(not Picnic().play(plan).violations for plan in smaller(summary))


@pytest.mark.long
def test_many_seeds_are_summed_up_and_the_first_that_fail_shrink(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--seeds", "12", "--first", "3", "--processes", "2"], (Picnic(),)) == 1
    captured = capsys.readouterr()
    summary = report(captured.out)
    assert (summary["seeds"], summary["violations"], summary["voided"]) == (12, 3, 11)
    assert summary["counts"] == {"runs": 12, "guests": 99}
    assert summary["faults"] == {"storm": 15}
    assert [failure["seed"] for failure in summary["failing"]] == [5, 10, 13]
    assert summary["failing"][0]["plan"]["weather"] == {"rain": 0, "storms": ["north"]}
    assert summary["failing"][2]["violations"] == ["raised: ValueError('the scenario failed')"]
    assert "picnic seed 5: dry: all are wet" in captured.err
    assert "fails with less" in captured.err


def test_one_seed_is_played_with_its_timeline(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "4", "--trace"], (Picnic(),)) == 0
    captured = capsys.readouterr()
    assert "a line" in captured.err.splitlines()
    assert report(captured.out)["violations"] == 0


def test_a_plan_is_played_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    plan = msgspec.json.encode(Plan(4, Weather(storms=("north",)))).decode()
    assert main(["--plan", plan], (Picnic(),)) == 1
    assert report(capsys.readouterr().out)["failing"][0]["seed"] == 4


def test_bad_arguments_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, why in (
        (["--seeds", "0"], "0 is not 1 or more"),
        (["--scenario", "opera"], "invalid choice: 'opera'"),
        (["--plan", "{"], "--plan: "),
        (["--plan", '{"seed":"x"}'], "--plan: Expected `int`, got `str` - at `$.seed`"),
    ):
        with pytest.raises(SystemExit):
            main(arguments, (Picnic(),))
        assert why in capsys.readouterr().err
