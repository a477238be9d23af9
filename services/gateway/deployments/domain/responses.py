"""Deployments as responses."""

from typing import Final, Literal, TypeAlias

from schemas.deployments import ArmRole, ArmTraffic
from schemas.model import HeldStage
from services.gateway.deployments.domain.bodies import BUCKETS_PER_PERCENT
from services.gateway.deployments.domain.buckets import sample_ratio
from services.gateway.models.domain.names import stage_name
from services.gateway.views.tables.deployments import DeploymentRow
from services.gateway.views.tables.models import ModelRow
from services.gateway.web.domain.responses import ListItem, Response, Seconds

HealthState: TypeAlias = Literal["ready", "converting", "busy", "failed", "unavailable"]
ALL: Final = 100.0


class HealthResponse(Response):
    """State of a version at the engine.

    state: `ready` answers; `converting` is being converted or loaded; `busy`: no more answers fit;
    `failed` cannot be answered with, `message` says why; `unavailable`: the engine does not run.
    """

    state: HealthState
    message: str | None = None


class ArmResponse(Response):
    """A version of a deployment, and what it has answered since `since`.

    share: percent of callers; of `shadow`, of questions that it is asked as well.
    answers: answers that ended, or that their client left. failures: answers that the engine failed
      to give.
    callers: answered callers, counted by their 10,000 buckets.
    answer_ms: mean time of an answer; null: there is none.
    health: null in lists.
    """

    model: str
    role: ArmRole
    share: float
    answers: int
    failures: int
    callers: int
    prompt_tokens: int
    completion_tokens: int
    answer_ms: int | None
    health: HealthResponse | None = None


class SampleRatioResponse(Response):
    """Check of whether both versions have answered as many callers as their shares predict.

    p_value: probability of such a difference by chance; null: fewer than 5 callers are expected of
    a version.
    mismatch: it is below 0.001, so answers of a version are missing, and the measurements are
    misleading.
    """

    callers: int
    expected_of_second: float
    second: int
    p_value: float | None
    mismatch: bool


class DeploymentResponse(ListItem):
    """Deployment under the name `id`: the version that holds the stage, and others next to it.

    since: time of the last change of its versions and shares.
    sample_ratio: null for one version.
    """

    id: str
    object: Literal["deployment"] = "deployment"
    stage: HeldStage
    series: str
    model: str
    since: Seconds
    serving_pool: str
    versions: list[ArmResponse]
    sample_ratio: SampleRatioResponse | None


def deployment_response(
    holder: ModelRow, stage: HeldStage, row: DeploymentRow, health: dict[str, HealthResponse]
) -> DeploymentResponse:
    """A deployment with what the engine says about its versions, by name."""
    deployed = row.deployment
    second = deployed.second
    lesser = 0.0 if second is None else second.buckets / BUCKETS_PER_PERCENT
    shares: list[tuple[ArmRole, str, float]] = [("first", deployed.model_id, ALL - lesser)]
    if second is not None:
        shares.append(("second", second.model_id, lesser))
    if deployed.shadow is not None:
        asked = deployed.shadow.buckets / BUCKETS_PER_PERCENT
        shares.append(("shadow", deployed.shadow.model_id, asked))
    counts = {arm.role: arm for arm in row.traffic or ()}
    return DeploymentResponse(
        id=stage_name(holder.id, stage),
        stage=stage,
        series=holder.series,
        model=holder.id,
        since=row.since,
        serving_pool=deployed.serving_pool,
        versions=[
            _arm(counts.get(role, ArmTraffic(model_id=name, role=role)), share, health.get(name))
            for role, name, share in shares
        ],
        sample_ratio=_sample_ratio(row),
    )


def _arm(counts: ArmTraffic, share: float, health: HealthResponse | None) -> ArmResponse:
    return ArmResponse.of(
        counts,
        model=counts.model_id,
        share=round(share, 2),
        callers=counts.subjects,
        answer_ms=counts.answer_ms // counts.answers if counts.answers else None,
        health=health,
    )


def _sample_ratio(row: DeploymentRow) -> SampleRatioResponse | None:
    ratio = sample_ratio(row.deployment, row.traffic or ())
    if ratio is None:
        return None
    return SampleRatioResponse(
        callers=ratio.first + ratio.second,
        expected_of_second=round(ratio.expected_second, 2),
        second=ratio.second,
        p_value=ratio.p,
        mismatch=ratio.mismatch,
    )
