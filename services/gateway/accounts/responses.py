"""Tenants, API keys, webhook endpoints and their deliveries."""

from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Final, Literal
from urllib.parse import urlsplit

from schemas.account import (
    DeliveryOutcome,
    Lane,
    Limits,
    PlanChange,
)
from schemas.billing import (
    AdjustmentReason,
    InvoiceAdjustment,
)
from schemas.endpoints import MAIL_SCHEME
from schemas.erasure import ErasurePart
from schemas.units import Ms
from services.gateway.accounts.tables import (
    DeliveryRow,
    EndpointRow,
    KeyRow,
    KeyUseRow,
    TenantRow,
    TrackingServerRow,
)
from services.gateway.web.responses import ListItem, Response, Unseal, seconds, seconds_or_none

HINT_CHARACTERS: Final = 4
PRIVATE: Final = (
    "nothing is sent to plain http or to private addresses unless the notifier has "
    "TUNERY_NOTIFIER_ALLOW_PRIVATE=1"
)
UNCONFIRMED: Final = (
    "a code is mailed to the address, and nothing else before it is confirmed: "
    "tunery webhook confirm {endpoint_id} CODE"
)
MAIL_REFUSED: Final = (
    "the code could not be mailed: the notifier needs TUNERY_NOTIFIER_SMTP_URL and the domain in "
    "TUNERY_NOTIFIER_SMTP_DOMAINS, and its mail server must accept the address; then set it again"
)


class TenantLimitsResponse(Response):
    soft_gpu_ms: int
    hard_gpu_ms: int
    concurrency: int


class ScheduledPlanResponse(Response):
    """A plan that is to come. `effective_at`: the first second at which it is in force."""

    plan: Lane
    limits: TenantLimitsResponse
    price_version: str
    effective_at: int


class TenantResponse(ListItem):
    """`suspended_at`: since when the tenant cannot start jobs; null: it can."""

    id: str
    object: Literal["tenant"] = "tenant"
    created_at: int
    name: str | None
    plan: Lane
    limits: TenantLimitsResponse
    price_version: str
    scheduled_plan: ScheduledPlanResponse | None
    suspended_at: int | None


class ErasedPartResponse(Response):
    """`erased_at`: null until the part is gone."""

    part: ErasurePart
    erased_at: int | None


class ErasureResponse(Response):
    """`sha256`: of the record `TenantErased` on the log; null until all parts are gone."""

    object: Literal["tenant.erasure"] = "tenant.erasure"
    tenant: str
    status: Literal["running", "done"]
    begun_at: int
    erased_at: int | None
    parts: list[ErasedPartResponse]
    sha256: str | None


class AdjustmentResponse(Response):
    """`period`: the month whose invoice has it."""

    object: Literal["invoice.adjustment"] = "invoice.adjustment"
    tenant: str
    reference: str
    created_at: int
    period: str
    amount_micro: int
    currency: str
    reason: AdjustmentReason


class KeyResponse(ListItem):
    """`hint`: last characters of the secret. `previous_until`: end of the old secret's validity.
    `last_used_at`: to ten minutes; null: never, or before keys' use was noted.
    """

    id: str
    object: Literal["api_key"] = "api_key"
    created_at: int
    name: str | None
    hint: str
    scopes: list[str]
    models: list[str] | None
    spend_cap_micro: int | None
    spend_cap_currency: str | None
    requests_per_minute: int | None
    expires_at: int | None
    revoked_at: int | None
    previous_until: int | None
    last_used_at: int | None


class NewKeyResponse(KeyResponse):
    """`key`: the secret; no other response contains it."""

    key: str


class EndpointResponse(ListItem):
    """`signing_secret_hint`: last characters of its secret. `warning`: why nothing may arrive.

    `confirmed`: false for an e-mail address whose code was not confirmed yet.
    """

    id: str
    object: Literal["webhook_endpoint"] = "webhook_endpoint"
    created_at: int
    updated_at: int
    event_types: list[str]
    name: str | None
    url: str | None
    signing_secret_hint: str
    confirmed: bool
    warning: str | None


class NewEndpointResponse(EndpointResponse):
    """`signing_secret`: no other response contains it."""

    signing_secret: str


class TrackingServerResponse(Response):
    """`authorization`: of which kind its credentials are. `warning`: why nothing may arrive."""

    object: Literal["integration"] = "integration"
    type: Literal["mlflow"] = "mlflow"
    url: str | None
    authorization: str | None
    set_at: int
    warning: str | None


class EndpointTestResponse(Response):
    """`success`: the receiver answered 2xx. `status_code`: null where it did not answer."""

    object: Literal["webhook_endpoint.test"] = "webhook_endpoint.test"
    webhook_endpoint_id: str
    event_type: str
    delivery_id: str
    status_code: int | None
    success: bool
    outcome: DeliveryOutcome | Literal["pending"]


class EventObjectResponse(Response):
    id: str


class DeliveredEventResponse(Response):
    id: str
    type: str
    created_at: int
    data: EventObjectResponse


class DeliveryResponse(ListItem):
    id: str
    object: Literal["webhook_endpoint.delivery"] = "webhook_endpoint.delivery"
    webhook_endpoint_id: str
    event: DeliveredEventResponse
    created_at: int
    ended_at: int | None
    outcome: DeliveryOutcome | Literal["pending"]
    attempts: int | None
    status_code: int | None


class EventTypesResponse(Response):
    object: Literal["list"] = "list"
    data: list[str]


def tenant_response(row: TenantRow, unseal: Unseal) -> TenantResponse:
    """A tenant with its plan and limits, and the plan that is to come."""
    return TenantResponse(
        id=row.id,
        created_at=seconds(row.created_at),
        name=unseal(row.name, "name"),
        plan=row.plan,
        limits=_limits_response(row.limits),
        price_version=row.price_version,
        scheduled_plan=None if row.scheduled is None else _scheduled_response(row.scheduled),
        suspended_at=seconds_or_none(row.suspended_at),
    )


def _limits_response(limits: Limits) -> TenantLimitsResponse:
    return TenantLimitsResponse(
        soft_gpu_ms=limits.soft_gpu_ms,
        hard_gpu_ms=limits.hard_gpu_ms,
        concurrency=limits.concurrency,
    )


def _scheduled_response(change: PlanChange) -> ScheduledPlanResponse:
    return ScheduledPlanResponse(
        plan=change.terms.lane,
        limits=_limits_response(change.terms.limits),
        price_version=change.terms.price_version,
        effective_at=seconds(change.effective_at),
    )


def adjustment_response(
    tenant: str, adjusted: InvoiceAdjustment, at: Ms, period: str | None = None
) -> AdjustmentResponse:
    """An adjustment. `period`: the month it was made for; None: the month in which it was made."""
    return AdjustmentResponse(
        tenant=tenant,
        reference=adjusted.reference,
        created_at=seconds(at),
        period=period or f"{datetime.fromtimestamp(at // 1_000, UTC):%Y-%m}",
        amount_micro=adjusted.amount_micro,
        currency=adjusted.currency,
        reason=adjusted.reason,
    )


def key_response(row: KeyRow, unseal: Unseal, used: KeyUseRow | None = None) -> KeyResponse:
    """An API key without its secret, and when it was last used."""
    return KeyResponse(
        id=row.id,
        created_at=seconds(row.created_at),
        name=unseal(row.name, "name"),
        hint=row.hint,
        scopes=list(row.scopes),
        models=None if row.models is None else list(row.models),
        spend_cap_micro=row.spend_cap_micro,
        spend_cap_currency=row.spend_cap_currency,
        requests_per_minute=row.requests_per_minute,
        expires_at=seconds_or_none(row.expires_at),
        revoked_at=seconds_or_none(row.revoked_at),
        previous_until=seconds_or_none(row.previous_until),
        last_used_at=None if used is None else seconds(used.last_used_at),
    )


def endpoint_response(
    row: EndpointRow, unseal: Unseal, secret: str, code_mailed: DeliveryRow | None = None
) -> EndpointResponse:
    """An endpoint with the last characters of its newest secret.

    code_mailed: the delivery that mails the code of its address, where that is unconfirmed.
    """
    url = unseal(row.url, "url")
    warning = PRIVATE if url is not None and is_private(url) else None
    if row.confirmation_id is not None:
        refused = code_mailed is not None and code_mailed.outcome == "refused"
        warning = MAIL_REFUSED if refused else UNCONFIRMED.format(endpoint_id=row.id)
    return EndpointResponse(
        id=row.id,
        created_at=seconds(row.created_at),
        updated_at=seconds(row.updated_at or row.created_at),
        event_types=list(row.event_types),
        name=unseal(row.name, "name"),
        url=url,
        signing_secret_hint=f"…{secret.rstrip('=')[-HINT_CHARACTERS:]}",
        confirmed=row.confirmation_id is None,
        warning=warning,
    )


def tracking_server_response(row: TrackingServerRow, unseal: Unseal) -> TrackingServerResponse:
    """A tracking server, without its credentials."""
    url, header = unseal(row.url, "url"), unseal(row.header, "authorization")
    return TrackingServerResponse(
        url=url,
        authorization=None if header is None else f"{header.partition(' ')[0]} …",
        set_at=seconds(row.set_at),
        warning=PRIVATE if url is not None and is_private(url) else None,
    )


def is_private(url: str) -> bool:
    """Whether a URL is one that the notifier calls only where it may reach private addresses.

    A name is not resolved: the notifier checks its addresses at each try.
    """
    if url.startswith(MAIL_SCHEME):
        return False
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        private = not ip_address(host).is_global
    except ValueError:
        private = host == "localhost" or host.endswith((".localhost", ".local", ".internal"))
    return private or parts.scheme != "https"


def delivery_response(row: DeliveryRow) -> DeliveryResponse:
    """A delivery; its outcome is `pending` until it has ended."""
    event = DeliveredEventResponse(
        id=row.event_id,
        type=row.event_type,
        created_at=seconds(row.event_at),
        data=EventObjectResponse(id=row.object_id),
    )
    return DeliveryResponse(
        id=row.id,
        webhook_endpoint_id=row.endpoint_id,
        event=event,
        created_at=seconds(row.due_at),
        ended_at=seconds_or_none(row.ended_at),
        outcome=row.outcome or "pending",
        attempts=row.attempts,
        status_code=row.status,
    )
