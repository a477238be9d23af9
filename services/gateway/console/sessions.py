"""Sessions: a random token in a cookie opens an API key that is stored encrypted for some hours.

Neither side is enough alone. The browser has the token and no key; the store has the token's hash,
and the key encrypted with the token. So a copy of the store is useless for signing in, and so is a
token that an attacker chose: a session begins with a token of our own.
"""

import hashlib
import os
import time
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec
import redis.asyncio
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SESSION_S: Final = 12 * 3_600
CODE_S: Final = 120
OF_TENANT_MAX: Final = 1_000  # sessions and codes in this process; the oldest ends
PREFIX: Final = "console:"
NONCE_BYTES, TOKEN_BYTES = 12, 32


class Person(msgspec.Struct, frozen=True):
    """The owner of a session."""

    key: str
    tenant: str
    name: str
    scopes: frozenset[str] | None = None  # None: the key may not read its own

    def may(self, resource: str, action: str) -> bool:
        """Return whether to offer what needs this scope; the API decides when it is used."""
        scopes = self.scopes
        return scopes is None or action in scopes or f"{resource}.{action}" in scopes


class Kept(Protocol):
    """Values that expire."""

    async def put(self, name: str, value: bytes, seconds: int, tenant: str) -> None: ...

    async def get(self, name: str) -> bytes | None: ...

    async def take(self, name: str) -> bytes | None:
        """Get and remove in one step: of two callers, one gets the value."""


class KeptHere:
    """Implements `Kept` in this process; a restart signs everybody out."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._values: dict[str, tuple[float, bytes, str]] = {}
        self._of_tenant: dict[str, OrderedDict[str, None]] = {}

    async def put(self, name: str, value: bytes, seconds: int, tenant: str) -> None:
        names = self._of_tenant.setdefault(tenant, OrderedDict())
        self._values[name] = (self._now_s() + seconds, value, tenant)
        names[name] = None
        oldest = next(iter(names))
        if len(names) > OF_TENANT_MAX or self._values[oldest][0] <= self._now_s():
            self._remove(oldest)

    async def get(self, name: str) -> bytes | None:
        until_s, value, _ = self._values.get(name, (0.0, b"", ""))
        return value if until_s > self._now_s() else None

    async def take(self, name: str) -> bytes | None:
        value = await self.get(name)
        if name in self._values:
            self._remove(name)
        return value

    def _remove(self, name: str) -> None:
        tenant = self._values.pop(name)[2]
        names = self._of_tenant[tenant]
        del names[name]
        if not names:
            del self._of_tenant[tenant]


class KeptInValkey:
    """Implements `Kept` for all gateways. Raises RedisError, OSError while Valkey is away."""

    def __init__(self, url: str) -> None:
        self._client: Any = redis.asyncio.from_url(url, protocol=2)

    async def put(self, name: str, value: bytes, seconds: int, tenant: str) -> None:
        await self._client.set(PREFIX + name, value, ex=seconds)

    async def get(self, name: str) -> bytes | None:
        value: bytes | None = await self._client.get(PREFIX + name)
        return value

    async def take(self, name: str) -> bytes | None:
        value: bytes | None = await self._client.getdel(PREFIX + name)
        return value


class Sessions:
    """Sessions and one-time codes."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    async def begin(self, person: Person, seconds: int = SESSION_S) -> str:
        """Store a person, and return the token that opens it."""
        token = urlsafe_b64encode(os.urandom(TOKEN_BYTES)).decode().rstrip("=")
        name, key = _split(token)
        nonce = os.urandom(NONCE_BYTES)
        sealed = AESGCM(key).encrypt(nonce, msgspec.json.encode(person), name.encode())
        await self._kept.put(name, nonce + sealed, seconds, person.tenant)
        return token

    async def find(self, token: str) -> Person | None:
        name, key = _split(token)
        return _open(await self._kept.get(name), name, key)

    async def end(self, token: str) -> Person | None:
        """Remove a session or redeem a code, and return its person."""
        name, key = _split(token)
        return _open(await self._kept.take(name), name, key)


def _split(token: str) -> tuple[str, bytes]:
    """Return the name under which a token's value is stored, and the key that decrypts it."""
    digest = hashlib.sha512(token.encode("utf-8", "surrogateescape")).digest()
    return digest[:32].hex(), digest[32:]


def _open(value: bytes | None, name: str, key: bytes) -> Person | None:
    if value is None:
        return None
    try:
        text = AESGCM(key).decrypt(value[:NONCE_BYTES], value[NONCE_BYTES:], name.encode())
    except InvalidTag:
        return None
    return msgspec.json.decode(text, type=Person)
