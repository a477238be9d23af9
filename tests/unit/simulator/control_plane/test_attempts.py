"""Leases of several nodes on virtual time: they work, and each way in which they end occurs."""

from collections import Counter

from simulator.control_plane.plan import CONSEQUENCES
from simulator.control_plane.scenario import CONTROL_PLANE

OF_GANGS = ("several nodes", "lost one of several nodes", "network between nodes cut")
SEEDS = (7, 27)


def test_leases_of_several_nodes_work_are_cut_off_and_lose_members() -> None:
    assert {*OF_GANGS} < {*CONSEQUENCES}
    faults = Counter[str]()
    for seed in SEEDS:
        verdict = CONTROL_PLANE.play(CONTROL_PLANE.plan(seed))
        assert not verdict.violations, f"seed {seed}: {verdict.violations[0]}"
        faults.update(verdict.faults)
    assert all(faults[kind] for kind in OF_GANGS), faults
