"""Configurations of a sweep, and which of them go on. Integers and seeded draws: pure."""

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from schemas.units import divide_up

TRIALS_MAX: Final = 64
RUNGS_MAX: Final = 6
SHARE_BYTES: Final = 6  # a double holds them exactly
#: stands for a loss that is not known: such a configuration is the worst
UNKNOWN_LOSS: Final = math.inf

#: configurations that one process trains in turns
COLOCATE_MAX: Final = 8

Values = Mapping[str, Any]
T = TypeVar("T")


def grid(parameters: Mapping[str, Sequence[Any]]) -> list[Values]:
    """All combinations, the last parameter changing first."""
    names = list(parameters)
    return [
        dict(zip(names, values, strict=True))
        for values in itertools.product(*(parameters[name] for name in names))
    ]


def grid_size(parameters: Mapping[str, Sequence[Any]]) -> int:
    """How many combinations there are."""
    return math.prod(len(values) for values in parameters.values())


def draws(parameters: Mapping[str, Any], count: int, seed: int) -> list[Values]:
    """Configurations drawn at random; the same seed draws the same ones.

    parameters: a list of values, or a range: `min`, `max`, and `scale`, "linear" or "log".
    """
    return [
        {name: _drawn(_share(seed, trial, name), values) for name, values in parameters.items()}
        for trial in range(count)
    ]


def _share(seed: int, trial: int, name: str) -> float:
    """A number from 0 to below 1, the same for the same arguments on any machine."""
    digest = hashlib.sha256(f"{seed}/{trial}/{name}".encode()).digest()
    return int.from_bytes(digest[:SHARE_BYTES], "big") / 256**SHARE_BYTES


def _drawn(share: float, values: Any) -> Any:
    if not isinstance(values, Mapping):
        return values[int(share * len(values))]
    low, high = values["min"], values["max"]
    if values.get("scale", "linear") == "log":
        value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    else:
        value = low + share * (high - low)
    is_whole = isinstance(low, int) and isinstance(high, int)
    return min(high, max(low, round(value) if is_whole else float(f"{value:.4g}")))


def rung_steps(first: int, last: int, factor: int) -> tuple[int, ...]:
    """Optimizer steps of each rung: from `first` to `last`, `factor` times as many each."""
    steps = [first]
    while steps[-1] < last and len(steps) < RUNGS_MAX:
        steps.append(min(last, steps[-1] * factor))
    return tuple(steps)


def survivors(trials: int, rungs: int, factor: int) -> tuple[int, ...]:
    """Numbers of configurations that continue after each rung but the last.

    One of `factor` continues, and at least one of all.
    """
    counts = []
    for _ in range(rungs - 1):
        trials = max(1, trials // factor)
        counts.append(trials)
    return tuple(counts)


def groups(members: Sequence[T], most: int) -> list[tuple[T, ...]]:
    """Split members into as few groups of at most `most` as possible, about equal in size."""
    count = divide_up(len(members), most)
    bounds = [len(members) * number // count for number in range(count + 1)] if count else []
    return [tuple(members[first:last]) for first, last in itertools.pairwise(bounds)]


def ranked(losses: Mapping[int, int | None]) -> list[int]:
    """Trials by their loss, the lowest first; equal ones by their number."""
    return sorted(losses, key=lambda trial: (_known(losses[trial]), trial))


def _known(loss_ppm: int | None) -> float:
    return UNKNOWN_LOSS if loss_ppm is None else loss_ppm
