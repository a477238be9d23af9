"""Bodies of requests about models and checkpoints."""

from itertools import pairwise
from typing import Annotated, Final

from pydantic import Field, StrictBool, StrictInt, StringConstraints, field_validator

from schemas.gate import GateStage
from schemas.model import BaseProof, HeldStage, Stage
from services.gateway.web.domain.bodies import Body, Id, Name
from services.gateway.web.domain.responses import fields_of, with_fields

PROJECTS_MAX: Final = 100
APPROVERS_MAX: Final = 100
ALIASES_MAX: Final = 32
BENCHMARKS_MAX: Final = 16  # of a policy
LOOKS_MAX: Final = 10
BaseName = Annotated[
    str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$")
]
Aliases = Annotated[list[BaseName], Field(max_length=ALIASES_MAX)]


class GatePolicyRequest(Body):
    """Gate policy for results of `base_model`; null: of all base models without one. Omitted fields
    have the gate's defaults.
    """

    base_model: BaseName | None = None
    blocking: Annotated[list[GateStage], Field(max_length=8)] = Field(
        default=["capability", "production"],
        description="comparisons that block: general questions beside the base model, the same "
        "beside the version in production, the tenant's own validation rows, a judge of the "
        "answers to them, refusals in benchmarks of safety",
    )
    alpha: Annotated[float, Field(ge=0.001, le=0.2, allow_inf_nan=False)] = Field(
        default=0.05, description="how often a result that lost nothing may be blocked"
    )
    drop_max: Annotated[float, Field(ge=0, le=0.5, allow_inf_nan=False)] | None = Field(
        default=None, description="loss of accuracy that is allowed; a job's own goes before"
    )
    gain_min: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        default=0.05, description="relative gain that is wanted on the validation rows"
    )
    benchmarks: Annotated[list[BaseName], Field(max_length=BENCHMARKS_MAX)] = Field(
        default=[], description="benchmarks that both sides answer besides the bundled questions"
    )
    refusal_min: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = Field(
        default=0,
        description="share of the unsafe prompts of a benchmark of safety that must be refused; "
        "0: as many as the base model refuses",
    )
    looks: Annotated[
        list[Annotated[float, Field(ge=0.05, le=1, allow_inf_nan=False)]],
        Field(min_length=1, max_length=LOOKS_MAX),
    ] = Field(
        default=[0.25, 0.5, 1],
        description="shares of the items of benchmarks with more than 1,000, rising to 1, after "
        "each of which the gate may decide; [1]: only once all are answered",
    )

    @field_validator("looks")
    @classmethod
    def _rise_to_one(cls, looks: list[float]) -> list[float]:
        if looks[-1] != 1 or any(before >= after for before, after in pairwise(looks)):
            raise ValueError("must rise, and end with 1")
        return looks


class QuarantineRequest(Body):
    """`reason` and `name` of who decides are kept on the log."""

    quarantined: StrictBool
    reason: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1_000)]
    name: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)]


class PermissionRequest(Body):
    """Request to share a checkpoint. `project_ids`: the tenants that may fetch it."""

    project_ids: Annotated[list[Id], Field(min_length=1, max_length=PROJECTS_MAX)]


@with_fields(**fields_of(BaseProof))
class BaseProofBody(Body):
    """Abilities of a base model, as `tunery base add` has found them."""


class BaseRequest(Body):
    """Request to add a base model. `path`: a folder with config.json, *.safetensors and tokenizer,
    which nodes must find too.

    Fields that are null stay as they are for a base model that is known.
    """

    id: BaseName
    path: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=4_096)]
    licence: Name = "unknown"
    aliases: Aliases | None = None
    source: BaseName | None = Field(
        default=None, description="its name at a hub, where the public can load it from"
    )
    revision: Annotated[str, StringConstraints(strict=True, pattern="^[0-9a-f]{40}$")] | None = (
        Field(default=None, description="its commit there")
    )
    shared: StrictBool | None = Field(
        default=None, description="tenants may download its files: GET /v1/bases/{id}/files"
    )
    proof: BaseProofBody | None = Field(
        default=None, description="what it was shown to do; jobs that it rules out are refused"
    )


class AliasRequest(Body):
    """Request to set other names of a base model. `aliases`: all of them; those that are not in the
    list go.
    """

    aliases: Aliases


class PromoteRequest(Body):
    stage: Stage
    expected: Id | None = Field(
        default=None, description="the version that holds the stage now; null: none does"
    )


class RollbackRequest(Body):
    stage: HeldStage


class ApprovalRequest(Body):
    """Approval of a version. `stage`: stage to which it may be promoted."""

    stage: HeldStage


class ApprovalRuleRequest(Body):
    """Approvals that promotions to a stage need.

    `required`: approvals of different keys; 0: none are needed. `approvers`: ids of the keys whose
    approvals count; empty: all keys but the author's.
    """

    stage: HeldStage
    required: Annotated[StrictInt, Field(ge=0, le=APPROVERS_MAX)]
    approvers: Annotated[list[Id], Field(max_length=APPROVERS_MAX, default_factory=list)]
