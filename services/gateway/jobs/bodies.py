"""Bodies of requests. Unknown fields are refused: a typo must not cost a training run."""

from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    StringConstraints,
)
from pydantic_core import PydanticCustomError

from schemas.account import RICH_EVENT_TYPES, STANDARD_EVENT_TYPES, AdjustmentReason
from schemas.dataset import LengthPolicy
from services.gateway.files.names import NAME
from services.gateway.web.scopes import SCOPES, Scope

METADATA_PAIRS_MAX: Final = 16
METADATA_KEY_MAX: Final = 64
METADATA_VALUE_MAX: Final = 512
INTEGRATIONS_MAX: Final = 5
SUFFIX_MAX: Final = 64
NAME_MAX: Final = 256
URL_MAX: Final = 2_048
EVENT_TYPES_MAX: Final = 16
SEED_MAX: Final = 2_147_483_647
PER_MINUTE_MAX: Final = 1_000_000
MODELS_MAX: Final = 100
REDELIVERIES_MAX: Final = 100
DAY_S: Final = 86_400
OVERLAP_S_MAX: Final = 30 * DAY_S
PURPOSES: Final = ("fine-tune",)
EXPIRES_S_MIN: Final = 3_600
EXPIRES_S_MAX: Final = 2_592_000
EXPIRES_RANGE: Final = f"{EXPIRES_S_MIN}…{EXPIRES_S_MAX}"
PARTS_MAX: Final = 2_000  # of one upload
PREVIEW_ROWS_MAX: Final = 20
PROJECTS_MAX: Final = 100
SECONDS_MAX: Final = 2**33  # since the epoch: the year 2242
INT_MAX: Final = 2**53 - 1  # what every JSON reader keeps exactly
AMOUNT_MICRO_MAX: Final = 10**15


def receiver_url(url: str) -> str:
    """Where a webhook may go as far as the URL alone tells; its addresses are checked each time."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or "@" in parts.netloc or any(character.isspace() for character in url):
        text = "must be like https://example.com/hook: a host, no user name, no spaces"
        raise PydanticCustomError("url", text)
    return url


Id = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=256)]
Name = Annotated[str, StringConstraints(strict=True, max_length=NAME_MAX)]
Count = Annotated[StrictInt, Field(ge=0, le=INT_MAX)]
Url = Annotated[
    str, StringConstraints(strict=True, max_length=URL_MAX), AfterValidator(receiver_url)
]
EventTypes = Annotated[list[Id], Field(min_length=1, max_length=EVENT_TYPES_MAX)]
Metadata = Annotated[
    dict[
        Annotated[str, StringConstraints(strict=True, max_length=METADATA_KEY_MAX)],
        Annotated[str, StringConstraints(strict=True, max_length=METADATA_VALUE_MAX)],
    ],
    Field(max_length=METADATA_PAIRS_MAX),
]
Stage = Literal["dev", "staging", "production", "archived"]
Hyperparameters = dict[StrictStr, Any]  # ranges are told by `tunery.plan.hyperparameters.problems`


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def wrong_purpose(given: str) -> str:
    return f"{given[:64]!r} is not supported here; use {', '.join(PURPOSES)}"


class ExpiresAfter(Body):
    """When a file goes by itself. A job that needs it is waited for."""

    anchor: Literal["created_at"]
    seconds: Annotated[StrictInt, Field(ge=EXPIRES_S_MIN, le=EXPIRES_S_MAX)]

    @property
    def ms(self) -> int:
        return 1_000 * self.seconds


class UploadRequest(Body):
    """A file that comes in parts; `bytes` is what all of them will have."""

    bytes: Annotated[StrictInt, Field(ge=1, le=INT_MAX)]
    filename: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=NAME_MAX)]
    mime_type: Name
    purpose: Name
    expires_after: ExpiresAfter | None = None
    dataset: Annotated[str, StringConstraints(strict=True, pattern=f"^{NAME}$")] | None = Field(
        default=None, description="the file becomes the next version of this data set"
    )


class CompleteRequest(Body):
    """`part_ids` in the order of the file's bytes; `md5` of the whole file, in hex."""

    part_ids: Annotated[list[Id], Field(min_length=1, max_length=PARTS_MAX)]
    md5: Annotated[str | None, StringConstraints(strict=True, pattern="^[0-9a-fA-F]{32}$")] = None


class MethodDetails(Body):
    hyperparameters: Hyperparameters | None = None


class Method(Body):
    type: StrictStr
    supervised: MethodDetails | None = None
    dpo: dict[str, Any] | None = None
    reinforcement: dict[str, Any] | None = None


class BudgetBody(Body):
    """The most that the job may cost; either bound, or both."""

    max_gpu_hours: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    max_amount_micro: Annotated[StrictInt, Field(ge=1, le=INT_MAX)] | None = None


class JobRequest(Body):
    """OpenAI's body, and groups of ours that reach us through the SDK's `extra_body`."""

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
    metadata: Metadata | None = None
    integrations: Annotated[list[Any], Field(max_length=INTEGRATIONS_MAX)] | None = None
    lora: Hyperparameters | None = Field(
        default=None, description="rank, alpha, dropout: numbers, or auto"
    )
    training: Hyperparameters | None = Field(
        default=None,
        description="max_length, learning_rate, warmup_ratio, weight_decay, precision, "
        "checkpoint_every_steps, slots, length_policy, validation_fraction, …",
    )
    eval: Hyperparameters | None = Field(
        default=None,
        description="validation_fraction: the share of rows kept for the gate; drop_max: how much "
        "accuracy the gate lets a model lose on its general items, as a share",
    )
    budget: BudgetBody | None = None
    dry_run: StrictBool = Field(
        default=False, description="check everything, answer with the estimate, record nothing"
    )


class PlainJob(Body):
    """What the plain routes have in common. `budget`, `dry_run`, … as in OpenAI's body."""

    suffix: Annotated[
        str | None, StringConstraints(strict=True, min_length=1, max_length=SUFFIX_MAX)
    ] = None
    seed: Annotated[StrictInt, Field(ge=0, le=SEED_MAX)] | None = None
    metadata: Metadata | None = None
    budget: BudgetBody | None = None

    def extras(self) -> dict[str, Any]:
        return self.model_dump(include=set(PlainJob.model_fields), exclude_none=True)


class SimpleJobRequest(PlainJob):
    """`POST /v1/jobs`. `dataset_uri`: `file-…`, `faq@2`, or `tunery://files/` before either."""

    base_model: Id
    dataset_uri: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=URL_MAX)]
    params: Hyperparameters = Field(
        default={}, description="rank, alpha, dropout, lr, epochs, batch_size, max_length, …"
    )


class FineTuningRequest(PlainJob):
    """`POST /v1/fine-tuning/jobs`."""

    base_model: Id
    training_file: Id
    validation_file: Id | None = None
    method: Name = "lora"
    hyperparameters: Hyperparameters = Field(default={}, description="as in `params`")
    eval_config: Hyperparameters | None = Field(default=None, description="as in `eval`")


class DeployRequest(Body):
    """`serving_pool` has no choice yet: serving is not built."""

    stage: Stage
    serving_pool: Id | None = None
    expected: Id | None = Field(
        default=None, description="the version that holds the stage now; null: nobody"
    )


class PermissionRequest(Body):
    """`project_ids`: the tenants that may fetch the checkpoint."""

    project_ids: Annotated[list[Id], Field(min_length=1, max_length=PROJECTS_MAX)]


class PreviewRequest(Body):
    """What a base model would see of a file's first rows, and what it would learn of them."""

    model: Id
    training_file: Id
    rows: Annotated[StrictInt, Field(ge=1, le=PREVIEW_ROWS_MAX)] = 3
    max_length: Annotated[StrictInt, Field(ge=1, le=131_072)] | None = None
    length_policy: LengthPolicy = "truncate"


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
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(SCOPES))] = Field(
        default=["read", "write"]
    )
    expires_at: Count | None = Field(default=None, description="seconds since the epoch")
    models: Annotated[list[Id], Field(min_length=1, max_length=MODELS_MAX)] | None = Field(
        default=None, description="base models that its jobs may train; null: all"
    )
    spend_cap_micro: Count | None = Field(
        default=None,
        description="what its jobs may cost in a calendar month (UTC), in millionths of the "
        "currency; a job that may cost more is refused",
    )
    requests_per_minute: Annotated[StrictInt, Field(ge=1, le=PER_MINUTE_MAX)] | None = None


class AdjustmentRequest(Body):
    """`amount_micro`, in millionths of the currency: below zero a credit, above it a charge."""

    reference: Annotated[
        str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,63}$")
    ]
    amount_micro: Annotated[StrictInt, Field(ge=-AMOUNT_MICRO_MAX, le=AMOUNT_MICRO_MAX)]
    reason: AdjustmentReason


class RotateKeyRequest(Body):
    overlap_seconds: Annotated[StrictInt, Field(ge=0, le=OVERLAP_S_MAX)] = Field(
        default=DAY_S, description="how long the old secret stays good"
    )


class EndpointRequest(Body):
    name: Name = ""
    url: Url
    event_types: EventTypes = Field(
        default=list(STANDARD_EVENT_TYPES),
        description="OpenAI's three unless you say; " + ", ".join(RICH_EVENT_TYPES) + " on request",
    )


class EndpointChangeRequest(Body):
    """What is left out stays as it is."""

    name: Name | None = None
    url: Url | None = None
    event_types: EventTypes | None = None


class RotateSecretRequest(Body):
    keep_old_secret_active_for_24_hours: bool = False


class TestRequest(Body):
    event_type: Id = STANDARD_EVENT_TYPES[0]


class RedeliverRequest(Body):
    """Which deliveries to make once more: by id, or every one due in [after, before)."""

    delivery_ids: Annotated[list[Id], Field(min_length=1, max_length=REDELIVERIES_MAX)] | None = (
        None
    )
    after: Count | None = Field(default=None, description="seconds since the epoch")
    before: Count | None = Field(default=None, description="seconds since the epoch")
    only_failed: bool = True


class BaseRequest(Body):
    """`path`: a folder with config.json, *.safetensors and tokenizer; nodes must find it too."""

    id: Annotated[
        str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$")
    ]
    path: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=4_096)]
    licence: Name = "unknown"


class PromoteRequest(Body):
    stage: Stage
    expected: Id | None = Field(
        default=None, description="the version that holds the stage now; null: nobody"
    )


class RollbackRequest(Body):
    stage: Literal["staging", "production"]
