"""The lease of a request has what the planner needs to know of it."""

from tests.unit.tunery.plan.scheduling.clusters import GB, HOUR, request
from tunery.plan.scheduling.requests import granted


def test_a_lease_holds_what_its_request_was_given() -> None:
    lease = granted(request("a", 12, "free", hours=2), (("x", 8), ("y", 4)), 5, "7")
    assert (lease.key, lease.slots, lease.memory_bytes, lease.lane) == ("7", 12, GB, 2)
    assert (lease.p90_ms, lease.granted_at, lease.started_at) == (2 * HOUR, 5, None)
