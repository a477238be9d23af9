"""Body of a request for an import, and the addresses that it may name."""

import re
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Annotated, Final, Literal

from pydantic import Field, SecretStr, StrictInt, StringConstraints

from schemas.imports import ImportSource
from services.gateway.web.domain.bodies import Body, Count, Id, Name
from services.gateway.web.domain.errors import invalid
from tunery.graders.pair_questions import PAIRS_MAX, PAIRS_MIN, TEXT_MAX

KEY_LENGTH_MAX: Final = 1_000
PRICES_MAX: Final = 100
DEPLOYMENTS_MAX: Final = 200
BUDGET_MICRO_MAX: Final = 100_000_000_000
#: as Azure permits them; both become parts of URLs that a server asks
Deployment = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Deployments = Annotated[dict[Id, Deployment], Field(max_length=DEPLOYMENTS_MAX)]
ApiVersion = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}(-preview)?$")]
PairText = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=TEXT_MAX)]
Dollars = Annotated[Decimal, Field(ge=0, le=100_000, allow_inf_nan=False)]
OFFICIAL: Final[Mapping[ImportSource, str]] = {
    "openai": "https://api.openai.com/v1",
    "together": "https://api.together.xyz/v1",
}
AZURE: Final = re.compile(r"https://[a-z0-9][a-z0-9-]{0,62}\.openai\.azure\.com")


class ModelPrice(Body):
    """US dollars for a million tokens of models; a name may have * in it."""

    models: Annotated[list[Name], Field(min_length=1, max_length=PRICES_MAX)]
    input: Dollars
    output: Dollars


class ImportRequest(Body):
    """Request to read an account of another service.

    `key`: of that account; it is encrypted, never shown, and destroyed when the import has ended.
    `base_url`: the resource at Azure; by default the service's own address.
    `teacher_budget_micro`: most that its old models may cost to answer held-out rows, in millionths
    of a US dollar; without it none is asked. `prices`: what they cost, where the bundled table does
    not say so. `api_version`, `deployments`: of Azure alone; the version of its API, and by tuned
    model the name of the deployment that answers for it.
    """

    source: ImportSource = "openai"
    key: Annotated[SecretStr, Field(min_length=1, max_length=KEY_LENGTH_MAX)]
    base_url: str | None = None
    teacher_budget_micro: Annotated[StrictInt, Field(ge=0, le=BUDGET_MICRO_MAX)] | None = None
    prices: Annotated[tuple[ModelPrice, ...], Field(max_length=PRICES_MAX)] = ()
    api_version: ApiVersion | None = None
    deployments: Deployments | None = None


class TrainImportRequest(Body):
    """Request to train what an import has planned.

    `max_amount_micro`: most that all its jobs may cost, as `amount_max_micro` of the estimate.
    """

    max_amount_micro: Count


class LabelledPairBody(Body):
    """Two answers to a prompt, and which is better by people's judgement."""

    prompt: PairText
    a: PairText
    b: PairText
    better: Literal["a", "b", "tie"]


class JudgementRequest(Body):
    """Request to have a model compare answers of old and new models.

    `judge`: any model that the key may ask, none that is compared. `pairs`: labelled by people;
    the judge counts where it agrees with them.
    """

    judge: Id
    pairs: Annotated[
        tuple[LabelledPairBody, ...], Field(min_length=PAIRS_MIN, max_length=PAIRS_MAX)
    ]


def secret_of(body: ImportRequest) -> str:
    """Return the key of the account. Raises ApiError 400 for one that no header can have."""
    key = body.key.get_secret_value().strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise invalid("is no key: letters, digits and signs without spaces", "key")
    return key


def check_source(body: ImportRequest) -> None:
    """Raises ApiError 400 for options of another service."""
    for name in ("api_version", "deployments"):
        if getattr(body, name) and body.source != "azure":
            raise invalid(f'is of an import with the source "azure", not "{body.source}"', name)


def address_of(body: ImportRequest, allowed: Collection[str]) -> str:
    """Return the address of the account's API. Raises ApiError 400 where a server may not ask it.

    allowed: further addresses that the operator permits
    """
    official = OFFICIAL.get(body.source)
    url = (body.base_url or official or "").rstrip("/")
    is_azure = body.source == "azure" and AZURE.fullmatch(url) is not None
    if url == official or is_azure or url in allowed:
        return url
    known = official or "https://NAME.openai.azure.com"
    text = f"must be {known}, or an address in the operator's TUNERY_GATEWAY_IMPORT_URLS"
    raise invalid(text, "base_url")
