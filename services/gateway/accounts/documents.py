"""What the API's document says of tenants, keys and webhooks; see `documents`."""

from typing import Literal

from services.gateway.web.documents import Shown


class TenantLimits(Shown):
    soft_gpu_ms: int
    hard_gpu_ms: int
    concurrency: int


class Tenant(Shown):
    id: str
    object: Literal["tenant"]
    created_at: int
    name: str | None
    plan: Literal["premium", "standard", "free"]
    limits: TenantLimits
    price_version: str


class ApiKey(Shown):
    """`hint`: the end of its secret. `previous_until`: how long the secret before is good."""

    id: str
    object: Literal["api_key"]
    created_at: int
    name: str | None
    hint: str
    scopes: list[str]
    models: list[str] | None
    spend_cap_micro: int | None
    requests_per_minute: int | None
    expires_at: int | None
    revoked_at: int | None
    previous_until: int | None


class NewApiKey(ApiKey):
    """`key`: the secret, here only."""

    key: str


class Endpoint(Shown):
    """`signing_secret_hint`: the end of its secret."""

    id: str
    object: Literal["webhook_endpoint"]
    created_at: int
    updated_at: int
    event_types: list[str]
    name: str | None
    url: str | None
    signing_secret_hint: str


class NewEndpoint(Endpoint):
    """`signing_secret`: here only."""

    signing_secret: str


class EndpointTest(Shown):
    """`success`: the receiver answered 2xx. `status_code`: null where it did not answer."""

    object: Literal["webhook_endpoint.test"]
    webhook_endpoint_id: str
    event_type: str
    delivery_id: str
    status_code: int | None
    success: bool
    outcome: Literal["pending", "delivered", "gave_up", "gone", "refused"]


class DeliveredObject(Shown):
    id: str


class DeliveredEvent(Shown):
    id: str
    type: str
    created_at: int
    data: DeliveredObject


class Delivery(Shown):
    id: str
    object: Literal["webhook_endpoint.delivery"]
    webhook_endpoint_id: str
    event: DeliveredEvent
    created_at: int
    ended_at: int | None
    outcome: Literal["pending", "delivered", "gave_up", "gone", "refused"]
    attempts: int | None
    status_code: int | None


class EventTypes(Shown):
    object: Literal["list"]
    data: list[str]
