"""Helpers of benchmarks: responses, percentiles, a folder for a stack, printed figures."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

import httpx

from tunery.local import processes

TICKS_S: Final = os.sysconf("SC_CLK_TCK")


def ok(response: httpx.Response) -> Any:
    """Return the body of a successful response. Raises RuntimeError for an error."""
    if response.is_error:
        raise RuntimeError(f"{response.request.url}: {response.status_code} {response.text[:500]}")
    return response.json()


@contextmanager
def data_folder() -> Iterator[Path]:
    """Create a folder for a stack, removed at the end of the block. Any user may traverse it."""
    with tempfile.TemporaryDirectory(prefix="tunery-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        yield folder


def percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile in the unit of the values, rounded to hundredths."""
    return round(quantiles(values, n=100, method="inclusive")[percent - 1], 2)


def print_figures(
    figures: Mapping[str, Any], *, as_json: bool, digits: int = 2, goal: str = ""
) -> None:
    """Print one figure a line and then the goal, or all figures as one JSON object."""
    if as_json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        shown = f"{value:16,.{digits}f}" if type(value) in (int, float) else value
        print(f"{name:30} {shown}")
    if goal:
        print(f"goal: {goal}")


def cpu_ticks(pid: int) -> tuple[int, ...]:
    """Ticks that a process computed, in user and system mode, and those of children that ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return tuple(map(int, fields[11:15]))


def cpu_s_below(service: int) -> float:
    """Processor time of all processes that a process has started, those that have ended, too."""
    ticks = 0
    for pid in (service, *processes.descendants(service)):
        with suppress(OSError):
            ticks += sum(cpu_ticks(pid)[2 if pid == service else 0 :])
    return ticks / TICKS_S
