"""Base models, fine-tuned versions, the files of an adapter, permissions."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from schemas.model import ApprovalRule, BaseProof, HeldStage, Stage, Verdict
from schemas.training import Adaptation, BlobFile, are_whole
from services.gateway.models.domain.names import HELD_STAGES, stage_name
from services.gateway.views.tables.models import (
    BaseRow,
    ModelChange,
    ModelChangeRow,
    ModelRow,
    PermissionRow,
)
from services.gateway.web.domain.responses import (
    Items,
    ListItem,
    Response,
    Seconds,
    TextOrNone,
    Unseal,
    fields_of,
    with_fields,
)

OWNER: Final = "tunery"
Format: TypeAlias = Literal["peft", "transformers"]


class ModelResponse(ListItem):
    """OpenAI's fields."""

    id: str
    object: Literal["model"] = "model"
    created: Seconds
    owned_by: str
    shutdown_date: str | None = None
    type: Literal["base", "fine-tuned", "checkpoint", "alias"]


@with_fields(
    **fields_of(BaseProof) | {"adaptations": (Items[Adaptation], ...), "targets": (Items[str], ...)}
)
class BaseProofResponse(Response):
    """Abilities of a base model, found when it was added; jobs that they rule out are refused."""


class BaseModelResponse(ModelResponse):
    """A base model. `drifted_sha256`: hash of its present files, where they differ from the added
    ones; null: they did not when they were last hashed. `proof`: null where none was made.
    """

    type: Literal["base"] = "base"
    sha256: str
    parameters: int
    context_length: int
    family: str
    licence: str
    aliases: Items[str]
    source: TextOrNone
    revision: TextOrNone
    shared: bool
    proof: BaseProofResponse | None
    drifted_sha256: str | None


class CheckedBaseResponse(BaseModelResponse):
    """A base model whose files were hashed. `path`: their folder, where gateway and nodes run."""

    path: str


class AliasModelResponse(ModelResponse):
    """Another name under which a model answers: of a base model, or of the version that holds a
    stage. `parent`: that model.
    """

    type: Literal["alias"] = "alias"
    parent: str


class CheckpointModelResponse(ModelResponse):
    """A checkpoint of a job, under its name in OpenAI's API."""

    type: Literal["checkpoint"] = "checkpoint"
    parent: str
    job_id: str
    checkpoint_id: str
    step_number: int


class QuarantineResponse(Response):
    """Quarantine decision of a person: `reason` and `name` as they were given."""

    quarantined: bool
    reason: str | None
    name: str | None
    decided_at: Seconds


class FineTunedModelResponse(ModelResponse):
    """A published version.

    format: an adapter as PEFT's, or a whole model as transformers'.
    series: the versions of one base model and suffix.
    lineage: every input by content hash. verdict: of the gate, as it judged the version last.
    gate_job_id: the job in which it did.
    quarantine: the last decision of a person beside the gate; null: none, or in a list.
    former: the version to which a roll-back returns the stage that this one holds; null: there is
      none, or in a list.
    restorable_until: time at which the files of a deleted version are erased; null: it is not
      deleted.
    """

    type: Literal["fine-tuned"] = "fine-tuned"
    parent: str
    job_id: str
    format: Format
    series: str
    stage: Stage
    stage_since: Seconds
    quarantined: bool
    verdict: Verdict
    gate_job_id: str
    imported: bool
    lineage: dict[str, Any]
    quarantine: QuarantineResponse | None = None
    former: str | None = None
    restorable_until: Seconds | None = None


class DownloadFileResponse(Response):
    name: str
    sha256: str
    bytes: int
    url: str


class AdapterResponse(Response):
    """`url` of each file works until `expires_at`, in epoch seconds.

    format: `peft` is an adapter for `base_model`, `transformers` a whole model.
    """

    id: str
    object: Literal["model.adapter"] = "model.adapter"
    format: Format = "peft"
    base_model: str
    expires_at: int
    files: list[DownloadFileResponse]


class ModelChangeResponse(ListItem):
    """Change of a version, and the API key that requested it; null: no key.

    stage: the one that it holds from then on; of an approval, the one that it is approved for.
    """

    id: str
    object: Literal["model.change"] = "model.change"
    created_at: Seconds
    change: ModelChange
    stage: Stage
    key_id: str | None


class ApprovalRuleResponse(ListItem):
    """Approvals that a promotion to the stage `id` needs. `approvers`: keys that count; empty:
    every key.
    """

    id: HeldStage
    object: Literal["approval_rule"] = "approval_rule"
    required: int
    approvers: Items[str]


class PermissionResponse(ListItem):
    """Permission to fetch a checkpoint. `project_id`: the tenant that has it."""

    id: str
    object: Literal["checkpoint.permission"] = "checkpoint.permission"
    created_at: Seconds
    project_id: str


def change_response(row: ModelChangeRow, key_id: str | None) -> ModelChangeResponse:
    return ModelChangeResponse.of(row, created_at=row.at, key_id=key_id)


def rule_response(rule: ApprovalRule) -> ApprovalRuleResponse:
    return ApprovalRuleResponse.of(rule, id=rule.stage)


def base_response(row: BaseRow) -> BaseModelResponse:
    """A base model, with its other names and where it comes from."""
    return BaseModelResponse.of(row, row.base, created=row.created_at, owned_by=OWNER)


def alias_responses(
    bases: Iterable[BaseModelResponse], versions: Iterable[FineTunedModelResponse]
) -> Iterator[AliasModelResponse]:
    """Further names of models, in the order of these."""
    for base in bases:
        for name in base.aliases:
            yield AliasModelResponse.of(base, id=name, type="alias", parent=base.id)
    for version in versions:
        if version.stage in HELD_STAGES:
            name = stage_name(version.id, version.stage)
            yield AliasModelResponse.of(version, id=name, type="alias", parent=version.id)


def model_response(
    row: ModelRow, unseal: Unseal | None = None, former: str | None = None
) -> FineTunedModelResponse:
    """A version with the stage it holds. Without `unseal` no text of people is in it."""
    return FineTunedModelResponse.of(
        row,
        row.lineage,
        created=row.created_at,
        owned_by=row.tenant,
        parent=row.lineage.base_id,
        format=format_of(row.files),
        stage_since=row.stage_at,
        gate_job_id=row.gate_job,
        lineage=msgspec.to_builtins(row.lineage),
        quarantine=None if unseal is None else _quarantine(row, unseal),
        former=former,
        restorable_until=row.erase_at,
    )


def _quarantine(row: ModelRow, unseal: Unseal) -> QuarantineResponse | None:
    if row.quarantine_at is None:
        return None
    return QuarantineResponse(
        quarantined=row.quarantined,
        reason=unseal(row.quarantine_cause, "cause"),
        name=unseal(row.quarantine_by, "by"),
        decided_at=row.quarantine_at,
    )


def adapter_response(row: ModelRow, urls: Mapping[str, str], expires_at: int) -> AdapterResponse:
    """The response with a version's files.

    urls: a URL for each file of the version, by name
    expires_at: in seconds since the epoch
    """
    return AdapterResponse(
        id=row.id,
        format=format_of(row.files),
        base_model=f"{row.lineage.base_id}@sha256:{row.lineage.base_sha256}",
        expires_at=expires_at,
        files=download_files(row.files, urls),
    )


def format_of(files: Iterable[BlobFile]) -> Format:
    """The form of what was trained."""
    return "transformers" if are_whole(files) else "peft"


def download_files(
    files: Iterable[BlobFile], urls: Mapping[str, str]
) -> list[DownloadFileResponse]:
    """Return the files that have a URL, in their order."""
    return [
        DownloadFileResponse.of(file, url=url)
        for file in files
        if (url := urls.get(file.name)) is not None
    ]


def permission_response(row: PermissionRow) -> PermissionResponse:
    return PermissionResponse.of(row)
