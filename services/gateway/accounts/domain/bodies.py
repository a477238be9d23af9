"""Bodies of requests about tenants, API keys and webhook endpoints."""

from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from pydantic import (
    AfterValidator,
    Field,
    StrictBool,
    StrictInt,
    StringConstraints,
    model_validator,
)
from pydantic_core import PydanticCustomError

from schemas.account import RICH_EVENT_TYPES, STANDARD_EVENT_TYPES, PlanStart
from schemas.billing import AdjustmentReason, PriceBook
from schemas.endpoints import mail_address
from schemas.units import AMOUNT_MICRO_MAX
from services.gateway.web.domain.bodies import Body, Count, Id, Name
from services.gateway.web.domain.scopes import SCOPES, Scope
from services.gateway.web.domain.token_bucket import PER_MINUTE_MAX

URL_MAX: Final = 2_048
EVENT_TYPES_MAX: Final = 16
MODELS_MAX: Final = 100
REDELIVERIES_MAX: Final = 100
DAY_S: Final = 86_400
OVERLAP_S_MAX: Final = 30 * DAY_S
LANES_MAX: Final = 16
RATES_MAX: Final = 100


def receiver_url(url: str) -> str:
    """Check the form of a receiver's URL. Its addresses are checked by the notifier at each try."""
    if mail_address(url) is not None:
        return url
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    if not good or "@" in parts.netloc or any(character.isspace() for character in url):
        text = (
            "must be like https://example.com/hook: a host, no user name, no spaces; or for e-mail "
            "like mailto:ops@example.com, one address in ASCII"
        )
        raise PydanticCustomError("url", text)
    return url


def server_url(url: str) -> str:
    """Check the form of a server's URL, as of a receiver's; it is no e-mail address."""
    if mail_address(url) is not None or "?" in url or "#" in url:
        raise PydanticCustomError("url", "must be like https://mlflow.example.com, without a query")
    return receiver_url(url)


Url = Annotated[
    str, StringConstraints(strict=True, max_length=URL_MAX), AfterValidator(receiver_url)
]
Secret = Annotated[
    str, StringConstraints(strict=True, min_length=1, max_length=4_096, pattern=r"^[!-~]+$")
]
EventTypes = Annotated[list[Id], Field(min_length=1, max_length=EVENT_TYPES_MAX)]


class EraseRequest(Body):
    """Request to erase a tenant. `confirm`: the id of the tenant, once more."""

    confirm: Name


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


class PlanRequest(Body):
    """A change of a tenant's plan. What is missing stays as it is."""

    plan: Literal["premium", "standard", "free"] | None = Field(
        default=None, description="with the limits of that plan, unless `limits` are given"
    )
    limits: LimitsBody | None = None
    price_version: Id | None = None
    effective: PlanStart = Field(
        default="now", description="next_month: from the first moment of the next month (UTC)"
    )


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


class MonthBudgetRequest(Body):
    """Limits of what jobs may use in each calendar month (UTC): GPU time, an amount, or both."""

    key_id: Id | None = Field(default=None, description="whose jobs; null: all of the tenant")
    max_gpu_hours: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    max_amount_micro: Annotated[StrictInt, Field(ge=1, le=AMOUNT_MICRO_MAX)] | None = Field(
        default=None, description="in millionths of the currency of the tenant's price book"
    )


Reference = Annotated[
    str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,63}$")
]


class AdjustmentRequest(Body):
    """`amount_micro`, in millionths of the currency: below zero a credit, above it a charge."""

    reference: Reference
    amount_micro: Annotated[StrictInt, Field(ge=-AMOUNT_MICRO_MAX, le=AMOUNT_MICRO_MAX)]
    reason: AdjustmentReason
    period: Annotated[str, StringConstraints(max_length=16)] | None = Field(
        default=None, description="the month, like 2026-11; a closed one gets a credit note"
    )


PriceMicro = Annotated[StrictInt, Field(ge=-AMOUNT_MICRO_MAX, le=AMOUNT_MICRO_MAX)]


class TierBody(Body):
    """A lower price of what a month has above a quantity."""

    above: PriceMicro = Field(description="GPU-hours, or millions of tokens")
    unit_micro: PriceMicro = Field(description="each of them above that")


Tiers = Annotated[list[TierBody], Field(max_length=RATES_MAX)]


class RateBody(Body):
    """A price of some GPU time of a lane that differs from the lane's; what is null is any."""

    lane: Name
    gpu_hour_micro: PriceMicro
    role: Name | None = Field(default=None, description="train or eval")
    device: Name | None = Field(
        default=None, description="cpu, cuda, or an accelerator as its nodes name it, like h200"
    )
    spot: StrictBool | None = Field(
        default=None, description="whether the nodes may be taken away at short notice"
    )
    tiers: Tiers = Field(default_factory=list, description="the smallest quantity first")


class AnswerPricesBody(Body):
    """Prices of a million tokens of answers. `cached_micro_per_million`: price of prompt tokens
    that were in memory from an earlier question.
    """

    prompt_micro_per_million: PriceMicro
    cached_micro_per_million: PriceMicro
    completion_micro_per_million: PriceMicro


class PriceBookRequest(Body):
    """The file of a price book. Amounts in millionths of the currency, for an hour of one GPU.

    What is wrong with its numbers is decided where it is imported.
    """

    version: Id
    currency: Name
    gpu_hour_micro: Annotated[dict[Name, PriceMicro], Field(max_length=LANES_MAX)] = Field(
        description="lane → price"
    )
    token_micro_per_million: PriceMicro = 0
    effective_from: Name = Field(description="first day (UTC), like 2026-12-01")
    rates: Annotated[list[RateBody], Field(max_length=RATES_MAX)] = Field(
        default_factory=list, description="exceptions; the one that says most counts"
    )
    storage_micro_per_gb_month: PriceMicro = Field(
        default=0, description="10⁹ bytes of files, models and what sessions saved, all month"
    )
    token_tiers: Tiers = Field(
        default_factory=list, description="of a lane's trained tokens in a month"
    )
    answers: AnswerPricesBody | None = Field(
        default=None, description="of a million tokens that models read and write; null: nothing"
    )

    def book(self) -> PriceBook:
        return msgspec.convert(self.model_dump(), PriceBook)


class RotateKeyRequest(Body):
    overlap_seconds: Annotated[StrictInt, Field(ge=0, le=OVERLAP_S_MAX)] = Field(
        default=DAY_S, description="how long the old secret stays valid"
    )


class EndpointRequest(Body):
    name: Name = ""
    url: Url
    event_types: EventTypes = Field(
        default=list(STANDARD_EVENT_TYPES),
        description="by default OpenAI's three; also " + ", ".join(RICH_EVENT_TYPES),
    )


class EndpointChangeRequest(Body):
    """Fields that are missing or null are not changed."""

    name: Name | None = None
    url: Url | None = None
    event_types: EventTypes | None = None


class TrackingServerRequest(Body):
    """Credentials as those of MLflow's own client: a token, or a user name and a password."""

    url: Annotated[
        str, StringConstraints(strict=True, max_length=URL_MAX), AfterValidator(server_url)
    ]
    token: Secret | None = None
    username: Secret | None = None
    password: Secret | None = None

    @model_validator(mode="after")
    def _has_one_kind_of_credentials(self) -> "TrackingServerRequest":
        if self.token is not None and self.username is not None:
            raise PydanticCustomError("credentials", "give a token, or a user name and a password")
        if self.password is not None and self.username is None:
            raise PydanticCustomError("credentials", "a password needs a user name")
        return self


class ConfirmRequest(Body):
    """Confirmation of an endpoint. `code`: the code that was mailed to its address."""

    code: Annotated[
        str,
        StringConstraints(
            strict=True, strip_whitespace=True, to_lower=True, min_length=1, max_length=64
        ),
    ]


class RotateSecretRequest(Body):
    keep_old_secret_active_for_24_hours: bool = False


class TestRequest(Body):
    event_type: Id = STANDARD_EVENT_TYPES[0]


class RedeliverRequest(Body):
    """Deliveries to repeat: those with these ids, or all that were due in [after, before)."""

    delivery_ids: Annotated[list[Id], Field(min_length=1, max_length=REDELIVERIES_MAX)] | None = (
        None
    )
    after: Count | None = Field(default=None, description="seconds since the epoch")
    before: Count | None = Field(default=None, description="seconds since the epoch")
    only_failed: bool = True
