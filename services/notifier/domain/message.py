"""The bytes of a webhook: thin (an id, no data), the same at every attempt."""

import json

from msgspec.structs import asdict

from schemas.account import DeliveryDue
from schemas.units import HOUR_MS


def body(due: DeliveryDue) -> bytes:
    """OpenAI's event shape; receivers fetch the object itself over the API."""
    event = due.event
    data: dict[str, str | int] = {"id": event.object_id}
    if event.alert is not None:
        data |= {"month": event.alert.month, "percent": event.alert.percent}
    if event.usage is not None:
        hour_start = event.usage.hour_utc * HOUR_MS // 1_000
        data |= {"hour_start": hour_start, "kind": event.usage.kind, "gpu_ms": event.usage.gpu_ms}
        if event.usage.tokens:
            data["tokens"] = event.usage.tokens
        if event.usage.session is not None:
            data |= asdict(event.usage.session)
    if event.anomaly is not None:
        seen = event.anomaly
        data |= {"kind": seen.kind, "attempt": seen.attempt, "window_start": seen.window // 1_000}
        data |= {"measured_ppm": seen.measured_ppm, "usual_ppm": seen.usual_ppm}
    payload = {
        "id": event.event_id,
        "object": "event",
        "created_at": event.created_at // 1000,
        "type": event.event_type,
        "data": data,
    }
    return json.dumps(payload, separators=(",", ":")).encode()
