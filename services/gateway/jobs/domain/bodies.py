"""Bodies of requests about fine-tuning jobs: OpenAI's, and the plain ones."""

import json
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field, StrictBool, StrictInt, StrictStr, StringConstraints

from schemas.dataset import LengthPolicy, ReasoningPolicy
from schemas.enrolment import INVITATION_MS_MAX, PUBLIC_KEY, SEALED_SETTINGS_MAX, USES_MAX
from schemas.node import LABEL
from services.gateway.jobs.domain.integrations import IntegrationBody
from services.gateway.jobs.domain.texts import with_texts
from services.gateway.web.domain.bodies import INT_MAX, Body, Id, Metadata, Name
from tunery.plan.methods import ROWS_OF_METHOD

METHODS: Final[tuple[str, ...]] = tuple(ROWS_OF_METHOD)
INTEGRATIONS_MAX: Final = 5
SUFFIX_MAX: Final = 64
URI_MAX: Final = 2_048
SEED_MAX: Final = 2_147_483_647
PREVIEW_ROWS_MAX: Final = 20
SECONDS_MAX: Final = 10**11
TOLERATIONS_MAX: Final = 8
INVITED_S: Final = 3_600
NODE_POOL: Final = "default"
DOMAIN_WAIT_MAX: Final = 7 * 24 * 60  # minutes
Label = Annotated[str, StringConstraints(strict=True, pattern=rf"^{LABEL}$")]
Suffix = Annotated[str | None, StringConstraints(strict=True, min_length=1, max_length=SUFFIX_MAX)]


def _check_characters(value: Any) -> Any:
    """Raise ValueError for a text that cannot be encoded: JSON can write half of a character."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        text = "a text in it has half of a surrogate pair, which is not a character"
        raise ValueError(text) from error
    return value


CHARACTERS: Final = AfterValidator(_check_characters)
# ranges: `tunery.plan.hyperparameters`
Hyperparameters = Annotated[dict[StrictStr, Any], CHARACTERS]


class MethodDetails(Body):
    hyperparameters: Hyperparameters | None = None


class ReinforcementDetails(MethodDetails):
    """Settings of reinforcement.

    `grader`: a grader, as `POST /v1/fine_tuning/alpha/graders/validate` takes it.
    """

    grader: Annotated[dict[str, Any] | None, CHARACTERS] = None
    response_format: Any = None


class Method(Body):
    type: StrictStr
    supervised: MethodDetails | None = None
    dpo: MethodDetails | None = None
    simpo: MethodDetails | None = None
    orpo: MethodDetails | None = None
    cpo: MethodDetails | None = None
    reward: MethodDetails | None = None
    kto: MethodDetails | None = None
    reinforcement: ReinforcementDetails | None = None


class BudgetBody(Body):
    """The most that a job may use or cost: one bound, or both."""

    max_gpu_hours: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    max_amount_micro: Annotated[StrictInt, Field(ge=1, le=INT_MAX)] | None = None


class PlacementBody(Body):
    """Requirements of a job on its nodes."""

    accelerator: Label | None = Field(
        default=None, description="only nodes of this model, like h200; null: any"
    )
    spot: StrictBool | None = Field(
        default=None,
        description="true: also, and first, on spot machines while its checkpoints bear it; false: "
        "never; null: only where no other fits",
    )
    finish_by: Annotated[StrictInt, Field(ge=1, le=SECONDS_MAX)] | None = Field(
        default=None,
        description="epoch seconds: it leaves spot machines in time to be done by then",
    )
    tolerations: Annotated[list[Label], Field(max_length=TOLERATIONS_MAX)] = Field(
        default=[], description="taints of nodes that it may be on all the same"
    )
    domain: Label | None = Field(
        default=None, description="only nodes of this fabric domain, like rack-3; null: any"
    )
    domain_wait_minutes: Annotated[StrictInt, Field(ge=1, le=DOMAIN_WAIT_MAX)] | None = Field(
        default=None,
        description="so long it waits for a node of `domain` before it takes any; null: for ever",
    )


@with_texts
class JobRequest(Body):
    """OpenAI's body with additional groups, which the SDK sends with `extra_body={…}`."""

    model: Id
    training_file: Id
    validation_file: Id | None = None
    method: Method | None = None
    hyperparameters: Hyperparameters | None = Field(
        default=None, description="The deprecated top-level form; use `method`."
    )
    suffix: Suffix = None
    seed: Annotated[StrictInt, Field(ge=0, le=SEED_MAX)] | None = None
    metadata: Metadata | None = None
    integrations: Annotated[list[IntegrationBody], Field(max_length=INTEGRATIONS_MAX)] | None = (
        Field(
            default=None,
            description="tools that its figures are written for: wandb with a project, mlflow with "
            "an experiment, tensorboard",
        )
    )
    lora: Hyperparameters | None = Field(
        default=None,
        description="rank, alpha, dropout, target_modules, modules_to_save, rank_pattern, "
        "alpha_pattern, rslora, dora, lora_plus_ratio",
    )
    training: Hyperparameters | None = Field(
        default=None,
        description="every other hyper-parameter, for example max_length, learning_rate, "
        "scheduler, max_steps; slots, length_policy, validation_fraction; reasoning: keep, or drop "
        "it before rows are rendered; chat_template: text of a Jinja template in place of the base "
        "model's; eot_tokens: tokens that end a turn; mixture: further files, "
        'each with a weight: [{"file": "file-…", "weight": 0.3}]',
    )
    eval: Hyperparameters | None = Field(
        default=None,
        description="validation_fraction: the share of rows kept for the gate; drop_max: how much "
        "accuracy the gate lets a model lose on its general items, as a share; prompts: up to 8 "
        "texts that the base model and the new model answer, in place of the bundled ones; "
        "measures: what answers to measured_rows of the rows kept for the gate are measured by; "
        "benchmarks: names of those that both answer besides those of the policy, up to "
        "benchmark_items items of each (1,000)",
    )
    budget: BudgetBody | None = None
    placement: PlacementBody | None = None
    dry_run: StrictBool = Field(
        default=False, description="check everything, answer with the estimate, record nothing"
    )


class EstimateRequest(JobRequest):
    """Same body as a submission, but `training_file` may be omitted to check the rest first."""

    training_file: Id | None = None  # type: ignore[assignment]  # it may be uploaded after this
    training_tokens: Annotated[StrictInt, Field(ge=1, le=INT_MAX)] | None = Field(
        default=None,
        description="tokens of one epoch, where there is no training_file yet: the estimate is of "
        "rows of 512 tokens, half of which are answers",
    )


@with_texts
class PlainJob(Body):
    """Fields that both plain bodies have; they mean the same as in `JobRequest`."""

    suffix: Suffix = None
    seed: Annotated[StrictInt, Field(ge=0, le=SEED_MAX)] | None = None
    metadata: Metadata | None = None
    budget: BudgetBody | None = None
    placement: PlacementBody | None = None

    def extras(self) -> dict[str, Any]:
        return self.model_dump(include=set(PlainJob.model_fields), exclude_none=True)


class SimpleJobRequest(PlainJob):
    """`POST /v1/jobs`. `dataset_uri`: `file-…`, `faq@2`, or `tunery://files/` before either."""

    base_model: Id
    dataset_uri: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=URI_MAX)]
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


class PreviewRequest(Body):
    """Rows of a file to show as tokens, and the base model that tokenizes them."""

    model: Id
    training_file: Id
    rows: Annotated[StrictInt, Field(ge=1, le=PREVIEW_ROWS_MAX)] = 3
    max_length: Annotated[StrictInt, Field(ge=1, le=131_072)] | None = None
    length_policy: LengthPolicy = "truncate"
    reasoning: ReasoningPolicy = "keep"
    # chat_template, eot_tokens: as in `training` of a job
    chat_template: Annotated[StrictStr | None, CHARACTERS] = None
    eot_tokens: Annotated[list[StrictStr] | None, CHARACTERS] = None


SealedSettings = Annotated[
    str, StringConstraints(strict=True, pattern="^[A-Za-z0-9+/=]+$", max_length=SEALED_SETTINGS_MAX)
]


class InviteNodeRequest(Body):
    expires_in_seconds: Annotated[StrictInt, Field(ge=1, le=INVITATION_MS_MAX // 1_000)] = Field(
        default=INVITED_S, description="how long the token may be used"
    )
    pool: Id = Field(default=NODE_POOL, description="of a node that never registered")
    sealed_settings: SealedSettings | None = Field(
        default=None, description="what the node gets beside its keys; `tunery node enrol` seals it"
    )
    uses: Annotated[StrictInt, Field(ge=1, le=USES_MAX)] | None = Field(
        default=None,
        description="how many nodes may join, whose ids begin with this one and a hyphen; "
        "null: this node alone",
    )


class EnrolNodeRequest(Body):
    token: Annotated[str, StringConstraints(strict=True, min_length=1, max_length=256)]
    public_key: Annotated[str, StringConstraints(strict=True, pattern=f"^{PUBLIC_KEY}$")] = Field(
        description="X25519, hexadecimal"
    )
