"""Helpers of the benches over HTTP."""

from collections.abc import Sequence
from statistics import quantiles
from typing import Any

import httpx


def ok(response: httpx.Response) -> Any:
    """The body of a successful response. Raises RuntimeError for an error."""
    if response.is_error:
        raise RuntimeError(f"{response.request.url}: {response.status_code} {response.text[:500]}")
    return response.json()


def percentile(values: Sequence[float], percent: int) -> float:
    """In the unit of the values, to hundredths."""
    return round(quantiles(values, n=100, method="inclusive")[percent - 1], 2)
