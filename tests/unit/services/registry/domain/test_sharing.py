"""Who may fetch a checkpoint: given once, taken back once, limited."""

from schemas import errors
from schemas.envelope import Rejected
from schemas.model import (
    CheckpointShared,
    CheckpointUnshared,
    Share,
    ShareCheckpoint,
    UnshareCheckpoint,
)
from services.registry.domain.state import NOTHING, SHARED_MAX
from tests.unit.services.registry.domain.test_decide import step


def share(checkpoint: str, *projects: str) -> ShareCheckpoint:
    shares = tuple(Share(permission_id=f"cp_{checkpoint}{p}", project_id=p) for p in projects)
    return ShareCheckpoint(checkpoint_id=checkpoint, shares=shares)


def test_those_who_may_already_are_left_as_they_are() -> None:
    state, events = step(NOTHING, share("a", "x", "y"))
    assert [one.project_id for one in events if isinstance(one, CheckpointShared)] == ["x", "y"]
    state, events = step(state, share("a", "y", "z"))
    assert [one.project_id for one in events if isinstance(one, CheckpointShared)] == ["z"]
    _, events = step(state, share("b", "y"))
    assert len(events) == 1


def test_a_permission_is_taken_back_once_and_by_its_owner() -> None:
    state, _ = step(NOTHING, share("a", "x"))
    taken = UnshareCheckpoint(permission_id="cp_ax")
    _, (refused,) = step(state, taken, key="other")
    assert isinstance(refused, Rejected)
    state, events = step(state, taken)
    assert events == (CheckpointUnshared(checkpoint_id="a", permission_id="cp_ax", project_id="x"),)
    _, (refused,) = step(state, taken)
    assert isinstance(refused, Rejected)
    assert refused.code == errors.NOT_FOUND


def test_permissions_of_a_tenant_are_limited() -> None:
    state, _ = step(NOTHING, share("a", *map(str, range(SHARED_MAX))))
    _, (refused,) = step(state, share("b", "x"))
    assert isinstance(refused, Rejected)
    assert refused.code == errors.ILLEGAL_STATE
