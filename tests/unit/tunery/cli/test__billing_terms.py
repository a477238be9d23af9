"""Billing terms on the command line."""

from tunery.cli._billing_terms import billing_fields


def test_each_contract_term_is_a_line() -> None:
    months = {"first_month": "2026-11", "last_month": None}
    terms = {
        "tenant": "acme",
        "from_month": "2026-11",
        "next_from_month": None,
        "buyer": None,
        "seller": None,
        "due_days": 30,
        "taxes": [{"name": "VAT", "rate_ppm": 190_000}],
        "discounts": [{"reference": "K-1", "rate_ppm": 125_000, "lane": None, **months}],
        "overage": {"surcharge_ppm": 0, "gpu_hour_micro": 3_000_000, "currency": "EUR"},
        "commitment": {"reference": "K-2", "amount_micro": 5_000_000, "currency": "EUR", **months},
    }
    assert billing_fields(terms)[6:] == [
        ("VAT", "19 %"),
        ("discount K-1", "12.5 % from 2026-11"),
        ("overage", "3.00 EUR a GPU-hour"),
        ("minimum K-2", "5.00 EUR a month from 2026-11"),
    ]
    surcharge = {**terms, "overage": {"surcharge_ppm": 500_000, "gpu_hour_micro": None}}
    assert ("overage", "50 % more") in billing_fields(surcharge)
