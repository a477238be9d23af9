"""Base models, fine-tuned versions, the files of an adapter, permissions."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from schemas.model import ApprovalRule, HeldStage, Stage, Verdict
from schemas.training import BlobFile, are_whole
from services.gateway.models.tables import (
    BaseRow,
    ModelChange,
    ModelChangeRow,
    ModelRow,
    PermissionRow,
)
from services.gateway.web.responses import ListItem, Response, Unseal, seconds

OWNER: Final = "tunery"
Format: TypeAlias = Literal["peft", "transformers"]


class ModelResponse(ListItem):
    """OpenAI's fields."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    shutdown_date: str | None = None
    type: Literal["base", "fine-tuned", "checkpoint"]


class BaseModelResponse(ModelResponse):
    """drifted_sha256: of its files as they are now, where they are not those that were added; null:
    they were when they were last looked at.
    """

    type: Literal["base"] = "base"
    sha256: str
    parameters: int
    context_length: int
    family: str
    licence: str
    aliases: list[str]
    source: str | None
    revision: str | None
    shared: bool
    drifted_sha256: str | None


class CheckpointModelResponse(ModelResponse):
    """A checkpoint of a job, under its name in OpenAI's API."""

    type: Literal["checkpoint"] = "checkpoint"
    parent: str
    job_id: str
    checkpoint_id: str
    step_number: int


class QuarantineResponse(Response):
    """What a person decided beside the gate: `reason` and `name` as they were given."""

    quarantined: bool
    reason: str | None
    name: str | None
    decided_at: int


class FineTunedModelResponse(ModelResponse):
    """A published version.

    format: an adapter as PEFT's, or a whole model as transformers'.
    series: the versions of one base model and suffix.
    lineage: every input by content hash. verdict: of the gate, as it judged the version last.
    gate_job_id: the job in which it did.
    quarantine: the last decision of a person beside the gate; null: none, or in a list.
    restorable_until: of a deleted version, when its files are erased; null: it is not deleted.
    """

    type: Literal["fine-tuned"] = "fine-tuned"
    parent: str
    job_id: str
    format: Format
    series: str
    stage: Stage
    stage_since: int
    quarantined: bool
    verdict: Verdict
    gate_job_id: str
    imported: bool
    lineage: dict[str, Any]
    quarantine: QuarantineResponse | None = None
    restorable_until: int | None = None


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
    """What happened to a version, and by which API key; null: no key asked for it.

    stage: the one that it holds from then on; of an approval, the one that it is approved for.
    """

    id: str
    object: Literal["model.change"] = "model.change"
    created_at: int
    change: ModelChange
    stage: Stage
    key_id: str | None


class ApprovalRuleResponse(ListItem):
    """What a promotion to the stage `id` needs. `approvers`: keys that count; empty: every key."""

    id: HeldStage
    object: Literal["approval_rule"] = "approval_rule"
    required: int
    approvers: list[str]


class PermissionResponse(ListItem):
    """`project_id`: the tenant that may fetch the checkpoint."""

    id: str
    object: Literal["checkpoint.permission"] = "checkpoint.permission"
    created_at: int
    project_id: str


def change_response(row: ModelChangeRow, key_id: str | None) -> ModelChangeResponse:
    return ModelChangeResponse(
        id=row.id, created_at=seconds(row.at), change=row.change, stage=row.stage, key_id=key_id
    )


def rule_response(rule: ApprovalRule) -> ApprovalRuleResponse:
    return ApprovalRuleResponse(
        id=rule.stage, required=rule.required, approvers=list(rule.approvers)
    )


def base_response(row: BaseRow) -> BaseModelResponse:
    """A base model, with its other names and where it comes from."""
    return BaseModelResponse(
        id=row.id,
        created=seconds(row.created_at),
        owned_by=OWNER,
        sha256=row.base.sha256,
        parameters=row.base.parameters,
        context_length=row.base.context_length,
        family=row.base.family,
        licence=row.base.licence,
        aliases=list(row.base.aliases),
        source=row.base.source or None,
        revision=row.base.revision or None,
        shared=row.base.shared,
        drifted_sha256=row.drifted_sha256,
    )


def model_response(row: ModelRow, unseal: Unseal | None = None) -> FineTunedModelResponse:
    """A version with the stage it holds. Without `unseal` no text of people is in it."""
    return FineTunedModelResponse(
        id=row.id,
        created=seconds(row.created_at),
        owned_by=row.tenant,
        parent=row.lineage.base_id,
        job_id=row.lineage.job_id,
        format=format_of(row.files),
        series=row.series,
        stage=row.stage,
        stage_since=seconds(row.stage_at),
        quarantined=row.quarantined,
        verdict=row.verdict,
        gate_job_id=row.gate_job,
        imported=row.lineage.imported,
        lineage=msgspec.to_builtins(row.lineage),
        quarantine=None if unseal is None else _quarantine(row, unseal),
        restorable_until=None if row.erase_at is None else seconds(row.erase_at),
    )


def _quarantine(row: ModelRow, unseal: Unseal) -> QuarantineResponse | None:
    if row.quarantine_at is None:
        return None
    return QuarantineResponse(
        quarantined=row.quarantined,
        reason=unseal(row.quarantine_cause, "cause"),
        name=unseal(row.quarantine_by, "by"),
        decided_at=seconds(row.quarantine_at),
    )


def adapter_response(row: ModelRow, urls: Mapping[str, str], expires_at: int) -> AdapterResponse:
    """`urls`: one for each file of the version, by name. `expires_at` in seconds."""
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
    """Those of the files that have a URL, in their order."""
    return [
        DownloadFileResponse(name=file.name, sha256=file.sha256, bytes=file.bytes, url=url)
        for file in files
        if (url := urls.get(file.name)) is not None
    ]


def permission_response(row: PermissionRow) -> PermissionResponse:
    return PermissionResponse(
        id=row.id, created_at=seconds(row.created_at), project_id=row.project_id
    )
