"""Estimated time of a placement."""

from schemas.training import ExpectedTime
from simulator.control_plane.samples import request


def test_the_estimated_time_of_a_placement_is_that_of_its_job() -> None:
    placement = request(p50_ms=60_000, p90_ms=90_000).placement
    assert placement.estimated_time == ExpectedTime(p50_ms=60_000, p90_ms=90_000)
