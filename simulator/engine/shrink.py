"""Shrinks a failing plan: removes one thing after the other while the plan still fails."""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from msgspec import Struct, structs

from simulator.engine.verdict import Scenario

PLAYS_MAX: Final = 300

P = TypeVar("P", bound=Struct)


def smaller(plan: P) -> Iterator[P]:
    """Plans with one thing less: a number at 0 or half, a flag off, a tuple's half or element.

    Nested structs are made smaller likewise. `seed` stays: it decides what the rest means.
    """
    for name in plan.__struct_fields__:
        if name != "seed":
            for value in _less(getattr(plan, name)):
                yield structs.replace(plan, **{name: value})


def _less(value: Any) -> Iterator[Any]:
    match value:
        case bool():
            yield from (False,) if value else ()
        case int():
            yield from sorted({0, value // 2} - {value})
        case tuple():
            if len(value) > 2:
                yield value[: len(value) // 2]
                yield value[len(value) // 2 :]
            for index in range(len(value)):
                yield value[:index] + value[index + 1 :]
        case Struct():
            yield from smaller(value)
        case _:
            pass


def shrink(scenario: Scenario, plan: P, say: Callable[[str], None]) -> P:
    """The smallest plan found that violates one of the invariants that `plan` violates."""
    wanted = scenario.play(plan).violated
    plays = 0
    smallest: P | None = plan
    while smallest is not None:
        plan, smallest = smallest, None
        for candidate in smaller(plan):
            if plays == PLAYS_MAX:
                say(f"{scenario.name} seed {plan.seed}: not smaller within {plays} plays")  # type: ignore[attr-defined]  # every plan has one
                return plan
            plays += 1
            if scenario.play(candidate).violated & wanted:
                smallest = candidate
                break
    return plan
