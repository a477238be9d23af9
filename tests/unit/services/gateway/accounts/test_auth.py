"""Authentication with API keys, and their rights."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from schemas.account import KeyCreated, KeyRevoked, KeyRotated
from schemas.keys import KeyRotation, KeyTerms
from schemas.sealed import Sealed
from schemas.submission import KeyCap
from services.gateway.accounts.auth import BOOTSTRAP, EVERY_SCOPE, authenticate, digest
from services.gateway.settings import GatewaySettings
from services.gateway.web.deps import Deps, Principal
from services.gateway.web.domain.errors import ApiError
from tests.unit.services.gateway.view_rows import folded, views_over
from tunery.runtime.clock import SystemClock

SECRET, NEW_SECRET = "tun-secret", "tun-newer"
NOW = 5_000_000
KEY = KeyCreated(
    terms=KeyTerms(
        key_id="key-1",
        name=Sealed(key_id="k", nonce=b"n", ciphertext=b"c"),
        sha256=digest(SECRET),
        hint="cret",
        scopes=("jobs.read",),
        expires_at=None,
    )
)
ROTATED = KeyRotated(
    key_id="key-1",
    previous_sha256=digest(SECRET),
    rotation=KeyRotation(sha256=digest(NEW_SECRET), hint="ewer", previous_until=NOW + 1),
)


class Still(SystemClock):
    def now_ms(self) -> int:
        return NOW


async def principal_of(authorization: str | None, *events: Any) -> Principal:
    """The sender of this header, after these events of the tenant acme."""
    settings = GatewaySettings(admin_key_sha256=digest("operator"))
    views = views_over(folded("account", *events))
    deps = cast(Deps, SimpleNamespace(settings=settings, views=views, clock=Still()))
    return await authenticate(deps, authorization)


async def refusal_of(authorization: str | None, *events: Any) -> str:
    with pytest.raises(ApiError) as refusal:
        await principal_of(authorization, *events)
    assert (refusal.value.status, refusal.value.headers) == (401, {"www-authenticate": "Bearer"})
    return refusal.value.message


async def test_a_key_acts_for_its_tenant_with_its_own_limits() -> None:
    terms = replace(KEY.terms, models=("m",), spend_cap_micro=7, requests_per_minute=9)
    terms = replace(terms, spend_cap_currency="EUR")
    principal = await principal_of(f"bearer  {SECRET} ", KeyCreated(terms=terms))
    assert (principal.tenant, principal.key_id) == ("acme", "key-1")
    assert (principal.scopes, principal.models) == (frozenset({"jobs.read"}), frozenset({"m"}))
    assert principal.cap is not None
    assert principal.cap == KeyCap(key_id="key-1", spend_cap_micro=7, currency="EUR")
    assert (principal.per_minute, principal.sha256) == (9, digest(SECRET))


async def test_a_key_without_limits_may_train_all_models() -> None:
    principal = await principal_of(f"Bearer {SECRET}", KEY)
    assert (principal.models, principal.cap, principal.per_minute) == (None, None, None)


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", f"Basic {SECRET}", SECRET])
async def test_a_header_without_a_bearer_key_is_refused(header: str | None) -> None:
    assert "No API key was given" in await refusal_of(header, KEY)


async def test_a_key_that_is_unknown_or_too_long_is_refused() -> None:
    assert await refusal_of("Bearer tun-other", KEY) == "The API key is not valid."
    assert await refusal_of(f"Bearer {'x' * 257}", KEY) == "The API key is not valid."


async def test_a_key_ends_at_the_moment_it_expires() -> None:
    header = f"Bearer {SECRET}"
    expired, valid = (KeyCreated(terms=replace(KEY.terms, expires_at=at)) for at in (NOW, NOW + 1))
    assert await refusal_of(header, expired) == "The API key has expired."
    assert await principal_of(header, valid)


async def test_a_revoked_key_is_refused() -> None:
    revoked = KeyRevoked(key_id="key-1", sha256=KEY.terms.sha256)
    assert await refusal_of(f"Bearer {SECRET}", KEY, revoked) == "The API key was revoked."


async def test_a_rotated_key_has_two_secrets_until_the_overlap_is_over() -> None:
    for secret in (SECRET, NEW_SECRET):
        assert (await principal_of(f"Bearer {secret}", KEY, ROTATED)).key_id == "key-1"
    over = replace(ROTATED, rotation=replace(ROTATED.rotation, previous_until=NOW))
    assert "was rotated" in await refusal_of(f"Bearer {SECRET}", KEY, over)


async def test_a_revoked_key_is_revoked_with_the_secret_before_too() -> None:
    revoked = KeyRevoked(key_id="key-1", sha256=ROTATED.rotation.sha256)
    assert "revoked" in await refusal_of(f"Bearer {SECRET}", KEY, ROTATED, revoked)


async def test_the_operators_key_has_every_scope_and_no_row() -> None:
    principal = await principal_of("Bearer operator")
    assert (principal.key_id, principal.scopes) == (BOOTSTRAP, EVERY_SCOPE)
