"""A tenant's billing terms as requests send and responses show them."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, StrictInt, StringConstraints

from schemas.account import Lane
from schemas.billing import BillingTerms, Commitment, Discount, Months, OveragePrice, TaxRate
from schemas.records import build_from
from schemas.sealed import Sealed
from schemas.units import AMOUNT_MICRO_MAX, PPM
from services.gateway.accounts.domain.bodies import Reference
from services.gateway.web.domain.bodies import Body
from services.gateway.web.domain.responses import Response
from tunery.billing.contract import DISCOUNTS_MAX, SURCHARGE_PPM_MAX
from tunery.billing.periods import in_force

Address = Annotated[str, StringConstraints(min_length=1, max_length=1_000)]
Month = Annotated[str, StringConstraints(max_length=16)]
Currency = Annotated[str, StringConstraints(max_length=3)]
Amount = Annotated[StrictInt, Field(ge=1, le=AMOUNT_MICRO_MAX)]


class TaxBody(Body):
    """A tax on the net amount; `rate_ppm` in millionths of it."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    rate_ppm: Annotated[StrictInt, Field(ge=0, le=PPM)]


class DiscountBody(Body):
    """Less than the list price, in millionths of it; `lane` and months are of the use."""

    reference: Reference
    rate_ppm: Annotated[StrictInt, Field(ge=1, le=PPM)]
    lane: Lane | None = None
    first_month: Month | None = None
    last_month: Month | None = None


class OverageBody(Body):
    """Price of GPU time above the soft limit: a surcharge in millionths, or another price."""

    surcharge_ppm: Annotated[StrictInt, Field(ge=0, le=SURCHARGE_PPM_MAX)] = 0
    gpu_hour_micro: Annotated[StrictInt, Field(ge=0, le=AMOUNT_MICRO_MAX)] | None = None
    currency: Currency | None = None


class CommitmentBody(Body):
    """The least that is billed for each month's use, before taxes."""

    reference: Reference
    amount_micro: Amount
    currency: Currency | None = Field(default=None, description="by default the tenant's")
    first_month: Month | None = None
    last_month: Month | None = None


class BillingTermsRequest(Body):
    """Invoice texts and contract terms of a tenant; omitted fields are empty."""

    from_month: Month | None = Field(
        default=None,
        description="first month that has these terms, like 2026-12; by default the current one",
    )
    buyer: Address | None = Field(
        default=None, description="name, address and tax number as on the invoice"
    )
    seller: Address | None = Field(default=None, description="by default the installation's")
    taxes: Annotated[list[TaxBody], Field(max_length=5)] = Field(default_factory=list)
    due_days: Annotated[StrictInt, Field(ge=0, le=365)] = 30
    discounts: Annotated[list[DiscountBody], Field(max_length=DISCOUNTS_MAX)] = Field(
        default_factory=list
    )
    overage: OverageBody | None = None
    commitment: CommitmentBody | None = None


class TermsTaxResponse(Response):
    name: str
    rate_ppm: int


class DiscountResponse(Response):
    reference: str
    rate_ppm: int
    lane: str | None
    first_month: str | None
    last_month: str | None


class OverageResponse(Response):
    surcharge_ppm: int
    gpu_hour_micro: int | None
    currency: str | None


class CommitmentResponse(Response):
    reference: str
    amount_micro: int
    currency: str
    first_month: str | None
    last_month: str | None


class BillingTermsResponse(Response):
    """Invoice texts and contract terms of a tenant from a month on.

    `from_month`: first month; null: the tenant's first month. `next_from_month`: the first later
    month that has other terms; null: none has.
    """

    object: Literal["tenant.billing_terms"] = "tenant.billing_terms"
    tenant: str
    from_month: str | None
    next_from_month: str | None
    buyer: str | None
    seller: str | None
    taxes: list[TermsTaxResponse]
    due_days: int
    discounts: list[DiscountResponse]
    overage: OverageResponse | None
    commitment: CommitmentResponse | None


def billing_terms(body: BillingTermsRequest, buyer: Sealed | None, currency: str) -> BillingTerms:
    """The terms of a request. `currency`: of amounts that do not say theirs."""
    overage, commitment = body.overage, body.commitment
    return BillingTerms(
        buyer=buyer,
        taxes=tuple(TaxRate(name=tax.name, rate_ppm=tax.rate_ppm) for tax in body.taxes),
        due_days=body.due_days,
        seller=body.seller or "",
        discounts=tuple(
            build_from(
                Discount,
                discount,
                months=Months(first=discount.first_month, last=discount.last_month),
            )
            for discount in body.discounts
        ),
        overage=None if overage is None else _overage(overage, currency),
        commitment=None
        if commitment is None
        else build_from(
            Commitment,
            commitment,
            currency=commitment.currency or currency,
            months=Months(first=commitment.first_month, last=commitment.last_month),
        ),
    )


def _overage(body: OverageBody, currency: str) -> OveragePrice:
    if body.gpu_hour_micro is None:
        return OveragePrice(surcharge_ppm=body.surcharge_ppm)
    return OveragePrice(
        surcharge_ppm=body.surcharge_ppm,
        gpu_hour_micro=body.gpu_hour_micro,
        currency=body.currency or currency,
    )


def billing_terms_response(
    tenant: str, changes: Mapping[str, BillingTerms], month: str, buyer: str | None
) -> BillingTermsResponse:
    """Billing terms of a month, of month → terms from it on; with the buyer in clear."""
    terms = in_force(changes, month, BillingTerms())
    overage, commitment = terms.overage, terms.commitment
    return BillingTermsResponse(
        tenant=tenant,
        from_month=max((name for name in changes if name <= month), default=None) or None,
        next_from_month=min((name for name in changes if name > month), default=None),
        buyer=buyer,
        seller=terms.seller or None,
        taxes=[TermsTaxResponse.of(rate) for rate in terms.taxes],
        due_days=terms.due_days,
        discounts=[
            DiscountResponse.of(
                discount, first_month=discount.months.first, last_month=discount.months.last
            )
            for discount in terms.discounts
        ],
        overage=None
        if overage is None
        else OverageResponse(
            surcharge_ppm=overage.surcharge_ppm,
            gpu_hour_micro=overage.gpu_hour_micro,
            currency=overage.currency or None,
        ),
        commitment=None
        if commitment is None
        else CommitmentResponse.of(
            commitment,
            first_month=commitment.months.first,
            last_month=commitment.months.last,
        ),
    )
