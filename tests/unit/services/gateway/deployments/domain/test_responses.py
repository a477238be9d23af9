"""A deployment as it is shown."""

from schemas.deployments import Arm, ArmTraffic, Deployment
from schemas.model import Lineage
from services.gateway.deployments.domain.responses import HealthResponse, deployment_response
from services.gateway.views.tables.deployments import DeploymentRow
from services.gateway.views.tables.models import ModelRow

LINEAGE = Lineage(
    job_id="ftjob-1",
    base_id="smol",
    base_sha256="ab" * 32,
    dataset_version="v",
    training_sha256="ab" * 32,
    config_sha256="ab" * 32,
    steps=1,
    verdict="pass",
    scores_sha256="ab" * 32,
)
HOLDER = ModelRow(
    id="ft:smol:acme:demo:1",
    tenant="acme",
    sequence=1,
    created_at=1_000,
    series="smol/x",
    lineage=LINEAGE,
    files=(),
    stage="production",
    stage_at=2_000,
    quarantined=False,
    deleted=False,
)


def row(
    second: Arm | None, shadow: Arm | None, traffic: tuple[ArmTraffic, ...] | None = None
) -> DeploymentRow:
    deployed = Deployment(
        series="smol/x", stage="production", model_id=HOLDER.id, second=second, shadow=shadow
    )
    return DeploymentRow(
        id="production/smol/x", tenant="acme", since=3_000, deployment=deployed, traffic=traffic
    )


def test_shares_are_percent_and_times_are_averages() -> None:
    second, shadow = Arm(model_id="b", buckets=5), Arm(model_id="c", buckets=10_000)
    counted = (
        ArmTraffic(model_id=HOLDER.id, role="first", answers=4, answer_ms=1_001, subjects=3),
        ArmTraffic(model_id="c", role="shadow", failures=2),
    )
    health = {"b": HealthResponse(state="ready")}
    shown = deployment_response(HOLDER, "production", row(second, shadow, counted), health)
    assert (shown.id, shown.since) == ("ft:smol:acme:demo:production", 3_000)
    assert [(arm.model, arm.share, arm.answer_ms) for arm in shown.versions] == [
        (HOLDER.id, 99.95, 250),
        ("b", 0.05, None),
        ("c", 100.0, None),
    ]
    assert [arm.health is not None for arm in shown.versions] == [False, True, False]
    assert shown.sample_ratio is not None
    assert (shown.sample_ratio.callers, shown.sample_ratio.p_value) == (3, None)


def test_a_version_alone_has_no_ratio() -> None:
    shown = deployment_response(HOLDER, "production", row(None, None), {})
    assert [(arm.role, arm.share) for arm in shown.versions] == [("first", 100.0)]
    assert shown.sample_ratio is None
