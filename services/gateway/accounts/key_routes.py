"""`/v1/keys`: a tenant's own API keys. The stream `account` decides which key may change which.

Operators manage the keys of every tenant with `/v1/tenants/{tenant}/keys`.
"""

from typing import Annotated, Final

from fastapi import Query

from schemas.account import ADMIN_SCOPE, RevokeKey, RotateKey
from schemas.envelope import Sha256
from schemas.keys import KeyRotation
from schemas.topics import ACCOUNT
from services.gateway.accounts.auth import BOOTSTRAP, digest, fresh_secret
from services.gateway.accounts.domain.bodies import RotateKeyRequest
from services.gateway.accounts.domain.responses import (
    HINT_CHARACTERS,
    KeyResponse,
    NewKeyResponse,
    bootstrap_response,
    key_response,
)
from services.gateway.views.tables.accounts import KEY_USES, KEYS, KeyRow
from services.gateway.web.deps import Caller, Deps, Principal, WithDeps
from services.gateway.web.domain.errors import not_found
from services.gateway.web.domain.responses import Page, listing
from services.gateway.web.pages import After, page
from services.gateway.web.routing import new_router

LIMIT: Final = 100
LIMIT_MAX: Final = 1_000
CURRENT: Final = "current"  # in place of an id: the key of the request
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX)]
router = new_router("keys", "/v1/keys")


@router.get("")
async def list_own_keys(
    deps: WithDeps, caller: Caller, after: After = None, limit: Limit = LIMIT
) -> Page[KeyResponse]:
    """List the tenant's keys, newest first. Of a secret only the last characters are shown."""
    return await list_tenant_keys(deps, caller.tenant, after, limit)


@router.get("/{key_id}")
async def retrieve_own_key(key_id: str, deps: WithDeps, caller: Caller) -> KeyResponse:
    """One key of the tenant. The id `current` is the key of the request."""
    return await _shown(deps, caller.tenant, _resolve_id(caller, key_id))


@router.post("/{key_id}/rotate")
async def rotate_own_key(
    key_id: str, deps: WithDeps, caller: Caller, body: RotateKeyRequest | None = None
) -> NewKeyResponse:
    """Give the key of the request a new secret, which only this response contains."""
    request, key = body or RotateKeyRequest(), _resolve_id(caller, key_id)
    return await rotate_secret(deps, caller.tenant, key, request, caller, _caller_secret(caller))


@router.delete("/{key_id}")
async def revoke_own_key(key_id: str, deps: WithDeps, caller: Caller) -> KeyResponse:
    """Revoke the key of the request, or, with the scope `keys.write`, another of the tenant."""
    key = _resolve_id(caller, key_id)
    return await revoke(deps, caller.tenant, key, caller, _caller_secret(caller))


def _resolve_id(caller: Principal, key_id: str) -> str:
    return caller.key_id if key_id == CURRENT else key_id


def _caller_secret(caller: Principal) -> Sha256 | None:
    return None if ADMIN_SCOPE in caller.scopes else caller.sha256


# --- shared with the operators' routes of `tenant_routes`


async def list_tenant_keys(
    deps: Deps, tenant: str, after: str | None, limit: int
) -> Page[KeyResponse]:
    """Return a page of a tenant's keys, newest first; the operator's own key comes last."""
    rows, more = await page(deps.views, KEYS, {"tenant": tenant}, limit=limit, after=after)
    ids = tuple(row.id for row in rows)
    where = {"tenant": tenant, "id": ids}
    uses = {use.id: use for use in await deps.views.page(KEY_USES, where, limit=len(ids))}
    keys = [key_response(row, deps.unseal, uses.get(row.id)) for row in rows]
    settings = deps.settings
    if not more and tenant == settings.admin_tenant and settings.admin_key_sha256 is not None:
        keys.append(bootstrap_response(BOOTSTRAP))  # the oldest: answers are billed to it
    return listing(Page[KeyResponse], keys, more)


async def rotate_secret(
    deps: Deps,
    tenant: str,
    key_id: str,
    body: RotateKeyRequest,
    caller: Principal,
    caller_secret: Sha256 | None = None,
) -> NewKeyResponse:
    """Give a key a new secret.

    caller_secret: SHA-256 of the secret that the request was sent with; None for operators.

    Raises ApiError.
    """
    await _key(deps, tenant, key_id)
    secret = fresh_secret(deps)
    rotation = KeyRotation(
        sha256=digest(secret),
        hint=secret[-HINT_CHARACTERS:],
        previous_until=deps.clock.now_ms() + body.overlap_seconds * 1_000,
    )
    command = RotateKey(key_id=key_id, rotation=rotation, secret=caller_secret)
    await deps.decide(caller, ACCOUNT, command, tenant=tenant)
    return await with_secret(deps, tenant, key_id, secret)


async def revoke(
    deps: Deps, tenant: str, key_id: str, caller: Principal, caller_secret: Sha256 | None = None
) -> KeyResponse:
    await _key(deps, tenant, key_id)
    command = RevokeKey(key_id=key_id, secret=caller_secret)
    await deps.decide(caller, ACCOUNT, command, tenant=tenant)
    return await _shown(deps, tenant, key_id)


async def with_secret(deps: Deps, tenant: str, key_id: str, secret: str) -> NewKeyResponse:
    """The key's object with its new secret, of which only the SHA-256 is stored."""
    key = await _shown(deps, tenant, key_id)
    return NewKeyResponse(**dict(key), key=secret)


async def _shown(deps: Deps, tenant: str, key_id: str) -> KeyResponse:
    row = await _key(deps, tenant, key_id)
    used = await deps.views.first(KEY_USES, {"tenant": tenant, "id": key_id})
    return key_response(row, deps.unseal, used)


async def _key(deps: Deps, tenant: str, key_id: str) -> KeyRow:
    row = await deps.views.first(KEYS, {"tenant": tenant, "id": key_id})
    if row is None:
        raise not_found("API key", key_id, "id")
    return row
