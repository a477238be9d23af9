"""Tenants, API keys, webhook endpoints and their deliveries."""

from datetime import UTC, datetime
from typing import Any, Final

from schemas.account import AdjustInvoice
from schemas.units import Ms
from services.gateway.web.responses import Opened, Row, seconds

HINT_CHARACTERS: Final = 4


def tenant_object(row: Row, opened: Opened) -> dict[str, Any]:
    return {
        "id": row["id"],
        "object": "tenant",
        "created_at": seconds(row["created_at"]),
        "name": opened(row["name"]),
        "plan": row["plan"],
        "limits": row["limits"],
        "price_version": row["price_version"],
    }


def adjustment_object(tenant: str, adjusted: AdjustInvoice, at: Ms) -> dict[str, Any]:
    return {
        "object": "invoice.adjustment",
        "tenant": tenant,
        "reference": adjusted.reference,
        "created_at": seconds(at),
        "period": f"{datetime.fromtimestamp(at // 1_000, UTC):%Y-%m}",
        "amount_micro": adjusted.amount_micro,
        "currency": adjusted.currency,
        "reason": adjusted.reason,
    }


def key_object(row: Row, opened: Opened) -> dict[str, Any]:
    return {
        "id": row["id"],
        "object": "api_key",
        "created_at": seconds(row["created_at"]),
        "name": opened(row["name"]),
        "hint": row["hint"],
        "scopes": row["scopes"],
        "models": row["models"],
        "spend_cap_micro": row["spend_cap_micro"],
        "requests_per_minute": row["requests_per_minute"],
        "expires_at": seconds(row["expires_at"]),
        "revoked_at": seconds(row["revoked_at"]),
        "previous_until": seconds(row["previous_until"]),
    }


def endpoint_object(row: Row, opened: Opened, secret: str) -> dict[str, Any]:
    """`secret`: the newest, of which the end is shown."""
    return {
        "id": row["id"],
        "object": "webhook_endpoint",
        "created_at": seconds(row["created_at"]),
        "updated_at": seconds(row["updated_at"] or row["created_at"]),
        "event_types": row["event_types"],
        "name": opened(row["name"]),
        "url": opened(row["url"]),
        "signing_secret_hint": f"…{secret.rstrip('=')[-HINT_CHARACTERS:]}",
    }


def delivery_object(row: Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "object": "webhook_endpoint.delivery",
        "webhook_endpoint_id": row["endpoint_id"],
        "event": {
            "id": row["event_id"],
            "type": row["event_type"],
            "created_at": seconds(row["event_at"]),
            "data": {"id": row["object_id"]},
        },
        "created_at": seconds(row["due_at"]),
        "ended_at": seconds(row["ended_at"]),
        "outcome": row["outcome"] or "pending",
        "attempts": row["attempts"],
        "status_code": row["status"],
    }
