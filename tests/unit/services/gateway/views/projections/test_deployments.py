"""Given events of `model`, then rows of deployments."""

from collections.abc import Sequence

from schemas.deployments import Arm, ArmTraffic, Deployed, Deployment, TrafficCounted
from schemas.model import Event, StageMoved
from services.gateway.views.tables.deployments import DEPLOYMENTS, DeploymentRow, deployment_key
from tests.unit.services.gateway.view_rows import folded, rows

SHARED = Deployment(
    series="s", stage="production", model_id="a", second=Arm(model_id="b", buckets=1), salt="x"
)
COUNTED = TrafficCounted(
    series="s", stage="production", arms=(ArmTraffic(model_id="a", role="first", answers=2),)
)


def shown(*events: Event) -> Sequence[DeploymentRow]:
    return rows(folded("model", *events), DEPLOYMENTS)


def test_a_deployment_counts_until_its_shares_change() -> None:
    (row,) = shown(Deployed(deployment=SHARED), COUNTED)
    assert (row.id, row.deployment, row.traffic) == (
        deployment_key("s", "production"),
        SHARED,
        COUNTED.arms,
    )
    (row,) = shown(Deployed(deployment=SHARED), COUNTED, Deployed(deployment=SHARED))
    assert row.traffic is None


def test_it_ends_when_another_version_takes_the_stage() -> None:
    moved = StageMoved(model_id="b", series="s", stage="production", replaced="a", by="promotion")
    assert shown(Deployed(deployment=SHARED), moved) == []
    assert len(shown(moved, Deployed(deployment=SHARED))) == 1
