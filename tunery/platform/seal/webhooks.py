"""Signing secrets of webhook endpoints, and codes of their addresses: derived, never stored.

The gateway shows a secret once, when the endpoint is made; the notifier derives the same. The
gateway never shows a code: the notifier mails it.
"""

from base64 import b32encode, b64encode
from typing import Final

from tunery.platform.seal.sealer import Sealer

CODE_BYTES: Final = 15  # 24 characters


def webhook_secret(sealer: Sealer, tenant: str, endpoint_id: str, version: int) -> str:
    """`whsec_<base64 of 32 bytes>`, as Standard Webhooks writes it. Raises KeyDestroyed."""
    secret = sealer.secret(tenant, "webhook", endpoint_id, str(version))
    return f"whsec_{b64encode(secret).decode()}"


def confirmation_code(sealer: Sealer, tenant: str, endpoint_id: str, address: str) -> str:
    """24 characters that confirm this address of the endpoint. Raises KeyDestroyed."""
    secret = sealer.secret(tenant, "confirmation", endpoint_id, address)
    return b32encode(secret[:CODE_BYTES]).decode().lower()
