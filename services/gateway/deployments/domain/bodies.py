"""Bodies of requests about deployments."""

from typing import Annotated, Final

from pydantic import Field

from schemas.deployments import LOCAL_POOL
from schemas.model import HeldStage
from services.gateway.web.domain.bodies import Body, Id

BUCKETS_PER_PERCENT: Final = 100
Percent = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]


class ShadowRequest(Body):
    """`model` is asked `share` percent of the questions as well; its answers are only counted."""

    model: Id
    share: Percent


class DeployRequest(Body):
    """The whole deployment of a stage: parts that are left out end."""

    stage: HeldStage
    serving_pool: Id | None = Field(
        default=None,
        description=f"whose replicas answer; null: {LOCAL_POOL!r}, the engine of this machine",
    )
    traffic: Annotated[dict[Id, Percent], Field(min_length=1, max_length=2)] | None = Field(
        default=None,
        description="percent of callers by version: this one and another; null: all are its own",
    )
    shadow: ShadowRequest | None = None
    expected: Id | None = Field(
        default=None,
        description="the version that holds the stage now; null: none does, or this one",
    )
