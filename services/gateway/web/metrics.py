"""Metrics of the gateway: name, labels, meaning."""

from typing import Final

from tunery.runtime.telemetry.catalogue import counter, histogram

REQUESTS: Final = counter(
    "tunery_http_requests_total",
    "Requests answered, by route template and status",
    ("method", "route", "status"),
)
REQUEST_SECONDS: Final = histogram(
    "tunery_http_request_seconds",
    "Time from the first byte of a request to the end of its answer",
    ("method", "route"),
    (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0),
)


def count_request(method: str, route: str, status: str, seconds: float) -> None:
    """Count a request whose answer has ended."""
    REQUESTS.labels(method, route, status).inc()
    REQUEST_SECONDS.labels(method, route).observe(seconds)


RATES: Final = counter(
    "tunery_rates_total",
    "Requests whose rate limit was counted in Valkey (shared), or by this process (alone)",
    ("result",),
)
AUDIT_LOST: Final = counter(
    "tunery_audit_lost_total",
    "Audit entries for which there was no room while the log was away. Alert above 0",
)
UPLOAD_BYTES: Final = counter(
    "tunery_upload_bytes_total", "Bytes of files taken in over HTTP", unit="bytes"
)
