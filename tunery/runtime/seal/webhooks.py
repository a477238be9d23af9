"""Signing secrets of webhook endpoints: derived, never stored.

The gateway shows a secret once, when the endpoint is made; the notifier derives the same.
"""

from base64 import b64encode

from tunery.runtime.seal.sealer import Sealer


def webhook_secret(sealer: Sealer, tenant: str, endpoint_id: str, version: int) -> str:
    """`whsec_<base64 of 32 bytes>`, as Standard Webhooks writes it. Raises KeyDestroyed."""
    secret = sealer.secret(tenant, "webhook", endpoint_id, str(version))
    return f"whsec_{b64encode(secret).decode()}"
