"""A seed gives the same run in every process: a violation can be played again."""

import subprocess
import sys

import pytest

PROGRAM = """
import logging
from hashlib import sha256

from simulator.control_plane import control_plane_sim
from simulator.control_plane.plan import Size, draw
from simulator.event_core import run, simulation

logging.disable(logging.CRITICAL)
for seed in {event_core}:
    print(simulation.play(run.plan(seed)).fingerprint())
for seed in {control_plane}:
    history = control_plane_sim.play(draw(seed, Size()), Size()).context.broker.history
    print(sha256(repr(sorted(history.items())).encode()).hexdigest())
"""


@pytest.mark.parametrize(
    ("event_core", "control_plane"),
    [((3, 71), (4,)), pytest.param((8, 9, 160), (2, 12), marks=pytest.mark.long)],
)
def test_a_seed_gives_the_same_run_whatever_the_hash_seed(
    event_core: tuple[int, ...], control_plane: tuple[int, ...]
) -> None:
    program = PROGRAM.format(event_core=event_core, control_plane=control_plane)
    first, second = (
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.split()
        for hash_seed in ("1", "2")
    )
    assert first == second
    assert len(set(first)) == len(event_core) + len(control_plane)
