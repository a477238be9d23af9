"""Two sides that answered the same items, right or wrong."""

from fractions import Fraction
from math import ceil, comb, sqrt
from statistics import NormalDist
from typing import Final

NORMAL: Final = NormalDist()
POWER: Final = 0.8  # how often a drop of the size that is reported is shown


def mcnemar_worse(worse: int, better: int) -> float:
    """Exact one-sided p of at least `worse` of the discordant pairs, were both sides equally good.

    McNemar (1947), "Note on the sampling error of the difference between correlated proportions",
    in its exact form: worse ~ Binomial(worse + better, 1/2).
    """
    n = worse + better
    term = total = comb(n, worse)
    for k in range(worse, n):
        term = term * (n - k) // (k + 1)
        total += term
    return float(Fraction(total, 1 << n))


def drop_upper_bound(worse: int, better: int, items: int, alpha: float = 0.05) -> float:
    """One-sided upper bound of the drop in accuracy, as a share, at the level 1 - alpha.

    Wald interval for paired proportions after adding 1/2 to each cell (Agresti and Min 2005,
    "Simple improved confidence intervals for comparing matched proportions").
    """
    b, c, total = worse + 0.5, better + 0.5, items + 2
    drop = (b - c) / total
    z = NORMAL.inv_cdf(1 - alpha)
    return drop + z * sqrt(max(b + c - (b - c) ** 2 / total, 0)) / total


def discordant_share(worse: int, better: int, items: int) -> float:
    """Share of the items that exactly one side answered right, never 0: half a pair is added."""
    return (worse + better + 1) / (items + 2)


def smallest_drop(share: float, items: int, alpha: float) -> float:
    """Return the true drop, as a share, that a one-sided test of `items` pairs shows at POWER.

    (z_alpha + z_power) * sqrt(share / items), with `share` of the pairs discordant: Miettinen
    (1968), "The matched pairs design in the case of all-or-none responses", to first order.
    """
    return drop_shown(sqrt(share / items), alpha)


def drop_shown(error: float, alpha: float) -> float:
    """Return the true drop that a one-sided test shows at POWER. error: its standard error."""
    return (NORMAL.inv_cdf(1 - alpha) + NORMAL.inv_cdf(POWER)) * error


def items_needed(share: float, drop: float, alpha: float) -> int:
    """Return how many pairs show a true drop of this size at POWER: inverts `smallest_drop`."""
    return ceil((NORMAL.inv_cdf(1 - alpha) + NORMAL.inv_cdf(POWER)) ** 2 * share / drop**2)
