"""Tenants, API keys, webhook endpoints and their deliveries."""

from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Final, Literal
from urllib.parse import urlsplit

from schemas.account import DeliveryOutcome, Lane
from schemas.billing import AdjustmentReason, InvoiceAdjustment
from schemas.endpoints import MAIL_SCHEME
from schemas.erasure import ErasurePart
from schemas.units import Ms
from services.gateway.views.tables.accounts import (
    DeliveryRow,
    EndpointRow,
    KeyRow,
    KeyUseRow,
    TenantRow,
    TrackingServerRow,
)
from services.gateway.web.domain.responses import Items, ListItem, Response, Seconds, Unseal
from services.gateway.web.domain.scopes import SCOPES

HINT_CHARACTERS: Final = 4
PRIVATE: Final = (
    "nothing is sent to plain http or to private addresses: start with `tunery up "
    "--private-webhooks`, or set TUNERY_NOTIFIER_ALLOW_PRIVATE=1 for gateway and notifier"
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
    effective_at: Seconds


class TenantResponse(ListItem):
    """A tenant. `suspended_at`: since when it cannot start jobs; null: it can."""

    id: str
    object: Literal["tenant"] = "tenant"
    created_at: Seconds
    name: str | None
    plan: Lane
    limits: TenantLimitsResponse
    price_version: str
    scheduled_plan: ScheduledPlanResponse | None
    suspended_at: Seconds | None


class ErasedPartResponse(Response):
    """A part of a tenant that is erased. `erased_at`: null until the part is gone."""

    part: ErasurePart
    erased_at: int | None


class ErasureResponse(Response):
    """The erasure of a tenant. `sha256`: hash of the record in `TenantErased` on the log; null
    until all parts are gone.
    """

    object: Literal["tenant.erasure"] = "tenant.erasure"
    tenant: str
    status: Literal["running", "done"]
    begun_at: int
    erased_at: int | None
    parts: list[ErasedPartResponse]
    sha256: str | None


class AdjustmentResponse(Response):
    """A credit or a charge by an operator. `period`: the month whose invoice has it."""

    object: Literal["invoice.adjustment"] = "invoice.adjustment"
    tenant: str
    reference: str
    created_at: Seconds
    period: str
    amount_micro: int
    currency: str
    reason: AdjustmentReason


class KeyResponse(ListItem):
    """An API key. `hint`: last characters of the secret. `previous_until`: end of the old secret's
    validity. `last_used_at`: last use, to ten minutes; null: never, or before uses were
    recorded.
    """

    id: str
    object: Literal["api_key"] = "api_key"
    created_at: Seconds
    name: str | None
    hint: str
    scopes: Items[str]
    models: Items[str] | None
    spend_cap_micro: int | None
    spend_cap_currency: str | None
    requests_per_minute: int | None
    expires_at: Seconds | None
    revoked_at: Seconds | None
    previous_until: Seconds | None
    last_used_at: Seconds | None


class NewKeyResponse(KeyResponse):
    """An API key with its secret, `key`, which no other response contains."""

    key: str


class EndpointResponse(ListItem):
    """A webhook endpoint. `signing_secret_hint`: last characters of its secret. `warning`: why
    nothing may arrive.

    `confirmed`: false for an e-mail address whose code was not confirmed yet.
    """

    id: str
    object: Literal["webhook_endpoint"] = "webhook_endpoint"
    created_at: Seconds
    updated_at: Seconds
    event_types: Items[str]
    name: str | None
    url: str | None
    signing_secret_hint: str
    confirmed: bool
    warning: str | None


class NewEndpointResponse(EndpointResponse):
    """A webhook endpoint with its `signing_secret`, which no other response contains."""

    signing_secret: str


class TrackingServerResponse(Response):
    """A tenant's MLflow server. `authorization`: kind of its credentials. `warning`: why nothing
    may arrive.
    """

    object: Literal["integration"] = "integration"
    type: Literal["mlflow"] = "mlflow"
    url: str | None
    authorization: str | None
    set_at: Seconds
    warning: str | None


class EndpointTestResponse(Response):
    """Result of a webhook test. `success`: the receiver answered 2xx. `status_code`: null where it
    did not answer.
    """

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
    created_at: Seconds
    data: EventObjectResponse


class DeliveryResponse(ListItem):
    id: str
    object: Literal["webhook_endpoint.delivery"] = "webhook_endpoint.delivery"
    webhook_endpoint_id: str
    event: DeliveredEventResponse
    created_at: Seconds
    ended_at: Seconds | None
    outcome: DeliveryOutcome | Literal["pending"]
    attempts: int | None
    status_code: int | None


class EventTypesResponse(Response):
    object: Literal["list"] = "list"
    data: list[str]


def tenant_response(row: TenantRow, unseal: Unseal) -> TenantResponse:
    """A tenant with its plan and limits, and the plan that is to come."""
    change = row.scheduled
    scheduled = change and ScheduledPlanResponse.of(change, change.terms, plan=change.terms.lane)
    return TenantResponse.of(row, name=unseal(row.name, "name"), scheduled_plan=scheduled)


def adjustment_response(
    tenant: str, adjusted: InvoiceAdjustment, at: Ms, period: str | None = None
) -> AdjustmentResponse:
    """An adjustment. `period`: the month it was made for; None: the month in which it was made."""
    return AdjustmentResponse.of(
        adjusted,
        tenant=tenant,
        created_at=at,
        period=period or f"{datetime.fromtimestamp(at // 1_000, UTC):%Y-%m}",
    )


def bootstrap_response(key_id: str) -> KeyResponse:
    """The operator's key of the settings, which is on no log and cannot be changed by HTTP."""
    return KeyResponse(
        id=key_id,
        created_at=0,
        name="the operator's, from TUNERY_ADMIN_KEY_SHA256",
        hint="",
        scopes=sorted(SCOPES),
        models=None,
        spend_cap_micro=None,
        spend_cap_currency=None,
        requests_per_minute=None,
        expires_at=None,
        revoked_at=None,
        previous_until=None,
        last_used_at=None,
    )


def key_response(row: KeyRow, unseal: Unseal, used: KeyUseRow | None = None) -> KeyResponse:
    """An API key without its secret, and when it was last used."""
    last_used_at = None if used is None else used.last_used_at
    return KeyResponse.of(row, name=unseal(row.name, "name"), last_used_at=last_used_at)


def endpoint_response(
    row: EndpointRow,
    unseal: Unseal,
    secret: str,
    code_mailed: DeliveryRow | None = None,
    *,
    allow_private: bool = False,
) -> EndpointResponse:
    """An endpoint with the last characters of its newest secret.

    code_mailed: the delivery that mails the code of its address, where that is unconfirmed.
    allow_private: the notifier sends to private addresses, too.
    """
    url = unseal(row.url, "url")
    warning = _private_warning(url, allow_private=allow_private)
    if row.confirmation_id is not None:
        refused = code_mailed is not None and code_mailed.outcome == "refused"
        warning = MAIL_REFUSED if refused else UNCONFIRMED.format(endpoint_id=row.id)
    return EndpointResponse.of(
        row,
        updated_at=row.updated_at or row.created_at,
        name=unseal(row.name, "name"),
        url=url,
        signing_secret_hint=f"…{secret.rstrip('=')[-HINT_CHARACTERS:]}",
        confirmed=row.confirmation_id is None,
        warning=warning,
    )


def tracking_server_response(
    row: TrackingServerRow, unseal: Unseal, *, allow_private: bool = False
) -> TrackingServerResponse:
    """A tracking server, without its credentials."""
    url, header = unseal(row.url, "url"), unseal(row.header, "authorization")
    return TrackingServerResponse(
        url=url,
        authorization=None if header is None else f"{header.partition(' ')[0]} …",
        set_at=row.set_at,
        warning=_private_warning(url, allow_private=allow_private),
    )


def _private_warning(url: str | None, *, allow_private: bool) -> str | None:
    return PRIVATE if url is not None and is_private(url) and not allow_private else None


def is_private(url: str) -> bool:
    """Return whether the notifier calls a URL only where private addresses are permitted.

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
        created_at=row.event_at,
        data=EventObjectResponse(id=row.object_id),
    )
    return DeliveryResponse.of(
        row,
        webhook_endpoint_id=row.endpoint_id,
        event=event,
        created_at=row.due_at,
        outcome=row.outcome or "pending",
        status_code=row.status,
    )
