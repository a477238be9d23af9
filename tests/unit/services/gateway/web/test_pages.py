"""Pages of a list, by the id of the last item."""

import pytest

from schemas.account import EndpointCreated
from schemas.endpoints import EndpointTerms
from schemas.sealed import Sealed
from services.gateway.views.tables.accounts import ENDPOINTS
from services.gateway.web.domain.errors import ApiError
from services.gateway.web.pages import page
from tests.unit.services.gateway.view_rows import folded, views_over

SEALED = Sealed(key_id="k", nonce=b"n", ciphertext=b"c")


def created(endpoint_id: str) -> EndpointCreated:
    return EndpointCreated(
        terms=EndpointTerms(
            endpoint_id=endpoint_id, name=SEALED, url=SEALED, event_types=(), secret_version=1
        )
    )


RECORDS = folded("account", created("a"), created("b"), created("c"), key="acme")
VIEWS = views_over(folded("account", created("x"), key="other", records=RECORDS))
ACME = {"tenant": "acme"}


async def ids(limit: int, after: str | None = None, *, descending: bool = True) -> tuple[str, bool]:
    """The ids of a page of acme's endpoints, and whether there are more."""
    rows, more = await page(VIEWS, ENDPOINTS, ACME, limit=limit, after=after, descending=descending)
    return "".join(row.id for row in rows), more


async def test_a_list_begins_with_its_newest_item() -> None:
    assert await ids(2) == ("cb", True)
    assert await ids(2, descending=False) == ("ab", True)


async def test_a_page_that_is_just_full_is_the_last() -> None:
    assert await ids(3) == ("cba", False)


async def test_a_list_goes_on_after_the_last_item() -> None:
    assert await ids(2, "b") == ("a", False)
    assert await ids(2, "a") == ("", False)
    assert await ids(2, "b", descending=False) == ("c", False)


@pytest.mark.parametrize("after", ["nothing", "x"])
async def test_an_item_that_is_missing_or_another_tenants_is_not_found(after: str) -> None:
    with pytest.raises(ApiError) as refusal:
        await ids(2, after)
    assert (refusal.value.status, refusal.value.param) == (404, "after")
