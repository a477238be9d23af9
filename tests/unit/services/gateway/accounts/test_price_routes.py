"""Price books, as operators import and see them."""

from typing import Any

import pytest

from tests.unit.services.gateway.control_plane import ControlPlane

BOOK: dict[str, Any] = {
    "version": "2027-01",
    "currency": "EUR",
    "effective_from": "2027-01-01",
    "gpu_hour_micro": {"premium": 3_500_000, "standard": 2_600_000, "free": 0},
    "token_micro_per_million": 0,
    "rates": [
        {
            "lane": "standard",
            "gpu_hour_micro": 900_000,
            "role": "eval",
            "spot": True,
            "tiers": [{"above": 100, "unit_micro": 800_000}],
        }
    ],
}


OTHER = {"version": "2027-02", "effective_from": "2027-02-01"}


async def test_money_b3_a_book_is_imported_listed_and_binds_a_new_tenant(api: ControlPlane) -> None:
    imported = await api.api.post("/v1/prices", json=BOOK)
    assert imported.status_code == 201, imported.text
    shown = imported.json()
    assert (shown["id"], shown["in_force"], shown["is_default"]) == ("2027-01", False, False)
    again = await api.api.post("/v1/prices", json=BOOK)
    assert (again.status_code, again.json()) == (201, shown)
    assert shown["book"]["rates"][0]["gpu_hour_micro"] == 900_000
    assert shown["book"]["rates"][0]["tiers"] == [{"above": 100, "unit_micro": 800_000}]
    listed = (await api.api.get("/v1/prices")).json()["data"]
    assert [entry["id"] for entry in listed] == ["2026-11", "2027-01"]
    assert listed[0]["is_default"]
    assert (await api.api.get("/v1/prices/2027-01")).json() == shown
    created = await api.api.post("/v1/tenants", json={"id": "next", "price_version": "2027-01"})
    assert created.json()["price_version"] == "2027-01"


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"gpu_hour_micro": {"standard": -1}}, "gpu_hour_micro.standard", "between 0 and"),
        ({"gpu_hour_micro": {"standard": 2.4}}, "gpu_hour_micro.standard", "a whole number"),
        ({"gpu_hour_micro": {"fast": 1}}, "gpu_hour_micro", "lanes"),
        ({"currency": ""}, "currency", "ISO 4217"),
        ({"effective_from": "2026-11-01"}, "effective_from", "another first day"),
        ({"version": "2026-11"}, "version", "new version"),
        ({"gpu_hours_micro": {}}, "gpu_hours_micro", "not a known field"),
        ({"rates": [{"lane": "fast", "gpu_hour_micro": 1}]}, "rates.0.lane", "gpu_hour_micro"),
        ({"rates": [{"lane": "free", "gpu_hour": 1}]}, "rates.0.gpu_hour_micro", "is required"),
        ({"token_micro_per_million": 10**13}, "token_micro_per_million", "between 0 and"),
        ({"token_tiers": [{"above": 1, "unit_micro": 0}]}, "token_tiers.0.unit_micro", "fall"),
        ({"token_tiers": [{"above": 0, "unit_micro": 0}]}, "token_tiers.0.above", "must rise"),
        ({"token_tiers": [{"above": 1}]}, "token_tiers.0.unit_micro", "is required"),
    ],
)
async def test_money_b3_a_wrong_book_is_refused_with_the_field_and_the_fix(
    change: dict[str, Any], param: str, words: str, api: ControlPlane
) -> None:
    refused = await api.api.post("/v1/prices", json=BOOK | OTHER | change)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, param), error
    assert words in error["message"]


async def test_prices_are_for_operators_and_unknown_ones_are_missing(api: ControlPlane) -> None:
    client = await api.tenant()
    assert (await client.get("/v1/prices")).status_code == 403
    assert (await client.post("/v1/prices", json=BOOK)).status_code == 403
    assert (await api.api.get("/v1/prices/1999")).status_code == 404
