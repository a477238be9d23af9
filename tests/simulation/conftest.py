"""Simulations run without log lines."""

from collections.abc import Iterator

import pytest

from simulator.engine.command_line import silence


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """Thousands of stand-downs are logged; formatting them costs more than the runs."""
    with silence():
        yield
