"""Billing terms of a tenant as names and values."""

from collections.abc import Mapping
from typing import Any

from tunery.billing.currency import in_units, percent


def billing_fields(terms: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Billing terms as names and values, one line for each tax and each contract term."""
    fields: list[tuple[str, object]] = [
        ("tenant", terms["tenant"]),
        ("from", terms["from_month"]),
        ("other terms from", terms["next_from_month"]),
        ("buyer", terms["buyer"]),
        ("seller", terms["seller"]),
        ("days to pay", terms["due_days"]),
    ]
    fields += [(tax["name"], percent(tax["rate_ppm"])) for tax in terms["taxes"]]
    for discount in terms["discounts"]:
        words = f"{percent(discount['rate_ppm'])} {discount['lane'] or ''} {_months(discount)}"
        fields.append((f"discount {discount['reference']}", " ".join(words.split())))
    if (overage := terms["overage"]) is not None:
        hourly = overage["gpu_hour_micro"]
        words = f"{percent(overage['surcharge_ppm'])} more"
        if hourly is not None:
            words = f"{in_units(hourly)} {overage['currency']} a GPU-hour"
        fields.append(("overage", words))
    if (least := terms["commitment"]) is not None:
        words = f"{in_units(least['amount_micro'])} {least['currency']} a month"
        fields.append((f"minimum {least['reference']}", f"{words} {_months(least)}".rstrip()))
    return fields


def _months(terms: Mapping[str, Any]) -> str:
    first, last = terms["first_month"], terms["last_month"]
    since = f"from {first} " if first else ""
    return f"{since}to {last}" if last else since.rstrip()
