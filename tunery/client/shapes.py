"""Objects of the API with the fields that this client reads; responses have more."""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, TypedDict

UsageOf: TypeAlias = Literal["time", "answers", "sessions"]  # GPU time, or tokens of these
USAGE_PATHS: Final[Mapping[UsageOf, str]] = {
    "time": "/usage",
    "answers": "/usage/completions",
    "sessions": "/usage/sessions",
}


class Listing(TypedDict):
    data: list[Any]
    has_more: bool
    last_id: str | None


class FileObject(TypedDict):
    id: str
    bytes: int
    created_at: int
    filename: str | None
    purpose: str
    status: str
    status_details: str | None
    sha256: str
    dataset: str | None
    validation: dict[str, Any] | None


class JobObject(TypedDict):
    id: str
    created_at: int
    finished_at: int | None
    model: str
    fine_tuned_model: str | None
    status: str
    phase: str
    attempt: int | None
    node: str | None
    error: dict[str, Any] | None
    training_file: str
    queue: dict[str, Any] | None
    progress: dict[str, Any] | None
    cost: dict[str, Any]
    gate: dict[str, Any] | None
    hyperparameters: dict[str, Any]


class EventObject(TypedDict):
    id: str
    created_at: int
    level: str
    message: str
    type: str
    data: dict[str, Any]


class ModelObject(TypedDict, total=False):
    id: str
    created: int
    owned_by: str
    type: str
    stage: str
    parent: str
    job_id: str
    gate_job_id: str
    verdict: str
    quarantined: bool
    restorable_until: int | None


class BaseObject(TypedDict):
    id: str
    created: int
    sha256: str
    parameters: int
    context_length: int
    family: str
    licence: str
    aliases: list[str]
    source: str | None
    revision: str | None
    shared: bool
    proof: dict[str, Any] | None


class TenantObject(TypedDict):
    id: str
    name: str | None
    plan: str
    created_at: int
    limits: dict[str, int]
    price_version: str
    scheduled_plan: dict[str, Any] | None
    suspended_at: int | None


class BudgetObject(TypedDict):
    id: str
    key_id: str | None
    set_at: int
    month: str
    currency: str
    max_gpu_ms: int | None
    used_gpu_ms: int
    held_gpu_ms: int
    left_gpu_ms: int | None
    max_amount_micro: int | None
    used_micro: int
    held_micro: int
    left_micro: int | None
    reached_percent: int


class KeyObject(TypedDict, total=False):
    id: str
    name: str | None
    hint: str
    key: str
    scopes: list[str]
    models: list[str] | None
    spend_cap_micro: int | None
    spend_cap_currency: str | None
    requests_per_minute: int | None
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    previous_until: int | None
    last_used_at: int | None


class EndpointObject(TypedDict, total=False):
    id: str
    name: str | None
    url: str | None
    event_types: list[str]
    created_at: int
    signing_secret: str
    confirmed: bool
