"""Decisions of a pass are visible to its later decisions, and not outside the pass."""

from tests.unit.tunery.plan.scheduling.clusters import GB, HOUR, cluster, nodes, ran, request
from tunery.plan.scheduling.draft import Draft
from tunery.plan.scheduling.requests import PlanNode

AT = 10 * HOUR
KIND = PlanNode("a", 4, "cuda", 24 * GB).kind


def test_a_draft_knows_what_has_started_and_who_is_stopped() -> None:
    state = cluster(nodes(2, 2))
    victim = ran(request("f", 2, "free", hours=9), (("b", 2),), HOUR, AT)
    state.start(victim)
    state.advance(AT)
    draft = Draft(state, AT)
    assert list(draft.releases(KIND, 2)) == [(0, "a"), (AT + 8 * HOUR, "b")]
    assert list(draft.freeable(0, KIND, 2)) == ["b"]
    new = request("new", hours=3)
    draft.occupy(new, (("a", 1),))
    assert (draft.free.free["a"], draft.more) == (1, {"acme": 1})
    assert list(draft.releases(KIND, 2)) == [(AT + 3 * HOUR, "a"), (AT + 8 * HOUR, "b")]
    draft.stop(("f",))
    assert list(draft.freeable(0, KIND, 2)) == []
    draft.vacate(new)
    assert list(draft.releases(KIND, 2)) == [(0, "a"), (AT + 8 * HOUR, "b")]
    assert state.capacity.free == {"a": 2, "b": 0}
