"""API keys: bearer tokens, of which only the SHA-256 is stored."""

import hashlib
import hmac
from base64 import urlsafe_b64encode
from typing import Final

from schemas.submission import KeyCap
from services.gateway.views.tables.accounts import KEYS, KeyRow
from services.gateway.web.deps import Deps, Principal
from services.gateway.web.domain.errors import UNAUTHORIZED, ApiError, KeyRefused
from services.gateway.web.domain.scopes import SCOPES

EVERY_SCOPE: Final = frozenset(SCOPES)
KEY_CHARACTERS_MAX: Final = 256
BOOTSTRAP: Final = "bootstrap"
KEY_PREFIX: Final = "tun-"
SECRET_BYTES: Final = 32


def fresh_secret(deps: Deps, prefix: str = KEY_PREFIX) -> str:
    """A new key or token: random text that begins with `prefix`."""
    return prefix + urlsafe_b64encode(deps.draw(SECRET_BYTES)).decode().rstrip("=")


def digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


async def authenticate(deps: Deps, authorization: str | None) -> Principal:
    """Raises ApiError 401; StoreUnavailable when keys cannot be looked up."""
    scheme, _, key = (authorization or "").partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not key:
        raise _refused("No API key was given. Send it as 'Authorization: Bearer KEY'.")
    if len(key) > KEY_CHARACTERS_MAX:
        raise _refused("The API key is not valid.")
    sha256 = digest(key)
    settings = deps.settings
    admin_sha256 = settings.admin_key_sha256
    if admin_sha256 is not None and hmac.compare_digest(sha256, admin_sha256):
        return Principal(settings.admin_tenant, BOOTSTRAP, EVERY_SCOPE)
    return _principal(await _find(deps, sha256), sha256)


async def is_valid(deps: Deps, principal: Principal) -> bool:
    """Return whether the key of a long-running request is still valid. Raises StoreUnavailable."""
    if principal.key_id == BOOTSTRAP:
        return True
    try:
        await _find(deps, principal.sha256)
    except ApiError:
        return False
    return True


async def _find(deps: Deps, sha256: str) -> KeyRow:
    """Raises ApiError 401."""
    row = await deps.views.first(KEYS, {"sha256": sha256})
    if row is None:
        # the key whose previous secret this is, while that is still valid
        row = await deps.views.first(KEYS, {"previous_sha256": sha256})
        if row is None:
            raise _refused("The API key is not valid.")
        if row.previous_until is None or row.previous_until <= deps.clock.now_ms():
            raise _refused("The API key was rotated. Use its new secret.", row)
    if row.revoked_at is not None:
        raise _refused("The API key was revoked.", row)
    if row.expires_at is not None and row.expires_at <= deps.clock.now_ms():
        raise _refused("The API key has expired.", row)
    return row


async def principal_of(deps: Deps, tenant: str, key_id: str) -> Principal:
    """Return the caller that a key is, also where it is valid no more. Raises ApiError 401."""
    if (tenant, key_id) == (deps.settings.admin_tenant, BOOTSTRAP):
        return Principal(tenant, BOOTSTRAP, EVERY_SCOPE)
    row = await deps.views.first(KEYS, {"tenant": tenant, "id": key_id})
    if row is None:
        raise _refused("The API key does not exist.")
    return _principal(row, row.sha256)


def _principal(row: KeyRow, sha256: str) -> Principal:
    models, cap, currency = row.models, row.spend_cap_micro, row.spend_cap_currency or ""
    return Principal(
        row.tenant,
        row.id,
        frozenset(row.scopes),
        None if models is None else frozenset(models),
        None if cap is None else KeyCap(key_id=row.id, spend_cap_micro=cap, currency=currency),
        row.requests_per_minute,
        sha256,
    )


def _refused(message: str, row: KeyRow | None = None) -> KeyRefused:
    tenant, key_id = ("", "") if row is None else (row.tenant, row.id)
    headers = {"www-authenticate": "Bearer"}
    return KeyRefused(401, UNAUTHORIZED, message, None, headers, tenant, key_id)
