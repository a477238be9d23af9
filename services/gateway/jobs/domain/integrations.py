"""Tools that a job's figures are written for: `integrations` of OpenAI's body, and two more."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from pydantic import Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from schemas.integrations import IntegrationKind
from schemas.sealed import REDACTED
from schemas.submission import JobSpec
from services.gateway.web.domain.bodies import Body
from services.gateway.web.domain.responses import Unseal

FIELD: Final = "integrations"
WANDB: Final = "wandb"
TAGS_MAX: Final = 50  # OpenAI's limit, as are the lengths of a tag and of names
Label: TypeAlias = Annotated[
    str, StringConstraints(strict=True, strip_whitespace=True, min_length=1, max_length=128)
]
Tag: TypeAlias = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=64)]
Project: TypeAlias = Annotated[
    str, StringConstraints(strict=True, min_length=1, max_length=128, pattern=r"^[^/\\#?%:]+$")
]


class WandbSettings(Body):
    """Settings of a run in Weights & Biases. `name`: name of the run; null: the id of the job.
    `entity`: the team or user.
    """

    project: Project
    name: Label | None = None
    entity: Label | None = None
    tags: Annotated[list[Tag], Field(max_length=TAGS_MAX)] | None = None


class MlflowSettings(Body):
    experiment: Label = "tunery"


class IntegrationBody(Body):
    """One tool: `type`, and its settings under the same name."""

    type: Literal["mlflow", "tensorboard", "wandb"]
    wandb: WandbSettings | None = None
    mlflow: MlflowSettings | None = None

    @model_validator(mode="after")
    def _has_settings_of_its_type_alone(self) -> "IntegrationBody":
        if self.type == WANDB and self.wandb is None:
            raise PydanticCustomError("wandb", 'needs "wandb": {"project": …}')
        others = {"wandb": self.wandb, "mlflow": self.mlflow}
        for kind, settings in others.items():
            if settings is not None and kind != self.type:
                raise PydanticCustomError("other", f"has {kind!r}, but its type is {self.type!r}")
        return self

    def settings(self) -> dict[str, Any]:
        """Return the settings of the run in the request."""
        match self.type:
            case "wandb":
                return {} if self.wandb is None else self.wandb.model_dump(exclude_none=True)
            case "mlflow":
                return (self.mlflow or MlflowSettings()).model_dump()
            case "tensorboard":
                return {}


def repeated_kind(bodies: Sequence[IntegrationBody]) -> IntegrationKind | None:
    """A type that a request has twice; None: it has none."""
    kinds = [body.type for body in bodies]
    return next((kind for kind in kinds if kinds.count(kind) > 1), None)


def shown_integrations(spec: JobSpec, unseal: Unseal) -> list[dict[str, Any]]:
    """The integrations of a job as its request had them; none where its tenant was erased."""
    shown: list[dict[str, Any]] = []
    for integration in spec.integrations:
        text = unseal(integration.settings, "integration")
        if text is None or text == REDACTED:
            continue
        settings = msgspec.json.decode(text, type=dict[str, Any])
        shown.append(
            {"type": integration.kind, **({integration.kind: settings} if settings else {})}
        )
    return shown
