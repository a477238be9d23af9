"""Bodies of requests. Unknown fields are refused: a typo must not cost a training run."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, StringConstraints

METADATA_PAIRS_MAX: Final = 16
METADATA_KEY_MAX: Final = 64
METADATA_VALUE_MAX: Final = 512
INTEGRATIONS_MAX: Final = 5
SUFFIX_MAX: Final = 64
NAME_MAX: Final = 256
URL_MAX: Final = 2_048
EVENT_TYPES_MAX: Final = 16
SEED_MAX: Final = 2_147_483_647
INT_MAX: Final = 2**53 - 1  # what every JSON reader keeps exactly

Id = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=256)]
Name = Annotated[str, StringConstraints(strict=True, max_length=NAME_MAX)]
Count = Annotated[StrictInt, Field(ge=0, le=INT_MAX)]
Hyperparameters = dict[StrictStr, Any]  # ranges are told by `schemas.estimate.problems`


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MethodDetails(Body):
    hyperparameters: Hyperparameters | None = None


class Method(Body):
    type: StrictStr
    supervised: MethodDetails | None = None
    dpo: dict[str, Any] | None = None
    reinforcement: dict[str, Any] | None = None


class JobRequest(Body):
    """OpenAI's body, and two groups of ours that reach us through the SDK's `extra_body`."""

    model: Id
    training_file: Id
    validation_file: Id | None = None
    method: Method | None = None
    hyperparameters: Hyperparameters | None = Field(
        default=None, description="The deprecated top-level form; use `method`."
    )
    suffix: Annotated[
        str | None, StringConstraints(strict=True, min_length=1, max_length=SUFFIX_MAX)
    ] = None
    seed: Annotated[StrictInt, Field(ge=0, le=SEED_MAX)] | None = None
    metadata: (
        Annotated[
            dict[
                Annotated[str, StringConstraints(strict=True, max_length=METADATA_KEY_MAX)],
                Annotated[str, StringConstraints(strict=True, max_length=METADATA_VALUE_MAX)],
            ],
            Field(max_length=METADATA_PAIRS_MAX),
        ]
        | None
    ) = None
    integrations: Annotated[list[Any], Field(max_length=INTEGRATIONS_MAX)] | None = None
    lora: Hyperparameters | None = Field(
        default=None, description="rank, alpha, dropout: numbers, or auto"
    )
    training: Hyperparameters | None = Field(
        default=None,
        description="max_length, learning_rate, warmup_ratio, weight_decay, precision, "
        "checkpoint_every_steps, slots, length_policy, validation_fraction, …",
    )


class LimitsBody(Body):
    soft_gpu_ms: Count
    hard_gpu_ms: Count
    concurrency: Annotated[StrictInt, Field(ge=1, le=10_000)]


class TenantRequest(Body):
    id: Annotated[str, StringConstraints(strict=True, pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
    name: Name | None = None
    plan: Literal["premium", "standard", "free"] = "standard"
    limits: LimitsBody | None = None
    price_version: Id | None = None


class KeyRequest(Body):
    name: Name = ""
    scopes: Annotated[
        list[Literal["read", "write", "admin"]], Field(min_length=1, max_length=3)
    ] = Field(default=["read", "write"])
    expires_at: Count | None = Field(default=None, description="seconds since the epoch")


class EndpointRequest(Body):
    name: Name = ""
    url: Annotated[
        str, StringConstraints(strict=True, max_length=URL_MAX, pattern=r"^https?://[^\s/]+")
    ]
    event_types: Annotated[list[Id], Field(min_length=1, max_length=EVENT_TYPES_MAX)]


class BaseRequest(Body):
    """`path`: a folder with config.json, *.safetensors and tokenizer; nodes must find it too."""

    id: Annotated[
        str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$")
    ]
    path: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=4_096)]
    licence: Name = "unknown"


class PromoteRequest(Body):
    stage: Literal["dev", "staging", "production", "archived"]
    expected: Id | None = Field(
        default=None, description="the version that holds the stage now; null: nobody"
    )


class RollbackRequest(Body):
    stage: Literal["staging", "production"]
