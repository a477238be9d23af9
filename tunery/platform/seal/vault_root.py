"""A root key of Vault's transit engine, over HTTP. It never leaves Vault."""

import base64
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import msgspec

from tunery.platform.seal.abstract import KeyStoreBroken, RootRefused, RootUnavailable

KIND: Final = "vault"
CONNECT_S_MAX: Final = 1.0
ANSWER_S_MAX: Final = 3.0  # the event loop of a service stands still for as long
AWAY_S: Final = 2.0  # after a failure nothing is asked for this long
REFUSALS: Final = frozenset((400, 403, 404))  # of the key, the policy, the path


class VaultSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Address of Vault, and the transit key in it."""

    address: str  # URL of Vault
    # key, mount: path of the engine and name of the key
    key: str
    token_file: str  # file with the token, read at each request, so that Vault Agent may renew it
    mount: str = "transit"
    namespace: str | None = None  # a namespace of Vault Enterprise or OpenBao
    ca_file: str | None = None  # certificates of a private authority


class VaultRoot:
    """Implements `RootKey`. The token needs `update` on encrypt and decrypt of the key.

    transport: for tests.
    """

    def __init__(
        self, settings: VaultSettings, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._settings = settings
        self._away_until = 0.0
        address = httpx.URL(settings.address)
        if address.scheme not in ("http", "https"):
            raise KeyStoreBroken(f"{settings.address!r} is no address of Vault: https://HOST:8200")
        self._client = httpx.Client(
            base_url=address,
            timeout=httpx.Timeout(ANSWER_S_MAX, connect=CONNECT_S_MAX),
            trust_env=False,
            verify=_certificates(settings.ca_file),
            transport=transport,
        )

    def wrap(self, secret: bytes, context: bytes) -> str:
        text = _base64(secret)
        answer = self._ask("encrypt", {"plaintext": text, "associated_data": _base64(context)})
        return str(_field(answer, "ciphertext"))

    def unwrap(self, wrapped: str, context: bytes) -> bytes:
        """Raises as the port says."""
        if not wrapped.startswith(f"{KIND}:"):
            raise RootRefused("a data key was not wrapped by Vault; restore its file")
        answer = self._ask("decrypt", {"ciphertext": wrapped, "associated_data": _base64(context)})
        try:
            return base64.b64decode(str(_field(answer, "plaintext")), validate=True)
        except ValueError as error:
            raise RootUnavailable(f"{self._settings.address} answers something else") from error

    def rotate(self) -> None:
        """The token needs `update` on `keys/<key>/rotate`, too."""
        self._ask("keys", {}, "rotate")

    def forget(self) -> None:
        """The token needs `read` on `keys/<key>` and `update` on its `config`, too."""
        newest = _field(self._ask("keys", None), "latest_version")
        self._ask("keys", {"min_decryption_version": newest}, "config")

    def _ask(
        self, operation: str, body: Mapping[str, Any] | None, action: str = ""
    ) -> Mapping[str, Any]:
        """The field `data` of an answer; GET without a body. Raises as the port says."""
        where = self._settings
        if time.monotonic() < self._away_until:
            raise RootUnavailable(f"{where.address} did not answer a moment ago")
        path = "/".join(("/v1", where.mount, operation, quote(where.key, safe="")))
        try:
            answer = self._client.request(
                "GET" if body is None else "POST",
                f"{path}/{action}" if action else path,
                json=body,
                headers=self._headers(),
            )
        except httpx.HTTPError as error:
            self._away_until = time.monotonic() + AWAY_S
            raise RootUnavailable(f"{where.address} cannot be reached: {error!r}") from error
        if answer.status_code in REFUSALS:
            raise RootRefused(
                f"{where.address} refuses to {operation} with {where.mount}/{where.key}: "
                f"{answer.text.strip()[:200]}; look at the key and at the policy of the token"
            )
        if not answer.is_success:
            self._away_until = time.monotonic() + AWAY_S
            raise RootUnavailable(f"{where.address} answers {answer.status_code}")
        return _data(answer)

    def _headers(self) -> dict[str, str]:
        """Raises KeyStoreBroken."""
        path, namespace = self._settings.token_file, self._settings.namespace
        try:
            token = Path(path).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise KeyStoreBroken(f"{path}, with the token of Vault, cannot be read") from error
        return {
            "X-Vault-Token": token,
            "X-Vault-Request": "true",
            **({"X-Vault-Namespace": namespace} if namespace else {}),
        }


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _certificates(ca_file: str | None) -> ssl.SSLContext | bool:
    """Raises KeyStoreBroken."""
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise KeyStoreBroken(f"{ca_file} has no certificates of an authority") from error


def _data(answer: httpx.Response) -> Mapping[str, Any]:
    """Raises RootUnavailable for what no Vault says."""
    if not answer.content:
        return {}
    try:
        data = answer.json()["data"]
    except (ValueError, KeyError, TypeError) as error:
        raise RootUnavailable(f"{answer.url.host} does not answer as Vault does") from error
    return data if isinstance(data, dict) else {}


def _field(data: Mapping[str, Any], name: str) -> Any:
    """Raises RootUnavailable."""
    if name not in data:
        raise RootUnavailable(f"the answer of Vault has no {name}")
    return data[name]
