"""Assignment: all that an agent needs to run its member of a lease."""

from tests.unit.services.trainer.domain.test_evolve import WORK, grant, lease_ref, token


def test_a_grant_has_the_lease_the_member_and_the_placement() -> None:
    run = grant(role="train")
    assert (run.token, run.tenant, run.job_id) == (token(1), "acme", lease_ref(1).job_id)
    assert (run.attempt, run.role, run.work) == (1, "train", WORK)
    assert (run.node_id, run.slots) == ("a", 1)
    assert run.checkpoints == run.placement.checkpoints
