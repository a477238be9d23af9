"""A small server that answers as the transit engine of Vault is documented to, over real HTTP.

It is not Vault. It has the routes, statuses and bodies that a root key uses: encrypt and decrypt
with `associated_data`, versions, `min_decryption_version`, tokens, a sealed server.
"""

import base64
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

PATH: Final = re.compile(r"/v1/transit/(encrypt|decrypt|keys)/([^/]+)(?:/(rotate|config))?")


class RefusedError(Exception):
    """An answer with an error. `status` of HTTP."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


class TransitServer:
    """Keys by name, and the state that a test changes.

    sealed: nothing is answered. tokens: those that may do all. asked: how many requests came.
    """

    def __init__(self) -> None:
        self.keys: dict[str, list[bytes]] = {}
        self.oldest: dict[str, int] = {}
        self.tokens = {"token"}
        self.sealed = False
        self.asked = 0
        self.address = ""

    def create(self, name: str) -> None:
        self.keys[name], self.oldest[name] = [os.urandom(32)], 1

    def answer(self, method: str, path: str, token: str, body: dict[str, Any]) -> Any:
        """The field `data`, or None for 204. Raises RefusedError."""
        self.asked += 1
        matched = PATH.fullmatch(path)
        if self.sealed:
            raise RefusedError(503, "Vault is sealed")
        if token not in self.tokens:
            raise RefusedError(403, "permission denied")
        if matched is None:
            raise RefusedError(404, "no handler for route")
        operation, name, action = matched.groups()
        if name not in self.keys:
            raise RefusedError(404 if operation == "keys" else 400, "encryption key not found")
        match method, operation, action:
            case "POST", "encrypt", None:
                return {
                    "ciphertext": self._encrypt(name, body),
                    "key_version": len(self.keys[name]),
                }
            case "POST", "decrypt", None:
                return {"plaintext": self._decrypt(name, body)}
            case "GET", "keys", None:
                return {"latest_version": len(self.keys[name]), "name": name}
            case "POST", "keys", "rotate":
                self.keys[name].append(os.urandom(32))
            case "POST", "keys", "config":
                self.oldest[name] = body["min_decryption_version"]
            case _:
                raise RefusedError(405, "unsupported operation")
        return None

    def _encrypt(self, name: str, body: dict[str, Any]) -> str:
        nonce = os.urandom(12)
        aad = base64.b64decode(body.get("associated_data", ""))
        text = base64.b64decode(body["plaintext"], validate=True)
        sealed = nonce + AESGCM(self.keys[name][-1]).encrypt(nonce, text, aad)
        return f"vault:v{len(self.keys[name])}:{base64.b64encode(sealed).decode()}"

    def _decrypt(self, name: str, body: dict[str, Any]) -> str:
        matched = re.fullmatch(r"vault:v(\d+):(.+)", body["ciphertext"])
        if matched is None:
            raise RefusedError(400, "invalid ciphertext: no prefix")
        version = int(matched[1])
        if version < self.oldest[name]:
            raise RefusedError(
                400, "ciphertext or signature version is disallowed by policy (too old)"
            )
        if version > len(self.keys[name]):
            raise RefusedError(400, "invalid ciphertext: version is too new")
        sealed = base64.b64decode(matched[2])
        aad = base64.b64decode(body.get("associated_data", ""))
        try:
            text = AESGCM(self.keys[name][version - 1]).decrypt(sealed[:12], sealed[12:], aad)
        except InvalidTag:
            raise RefusedError(400, "cipher: message authentication failed") from None
        return base64.b64encode(text).decode()


@contextmanager
def transit_server() -> Iterator[TransitServer]:
    """The server at a port of its own, with the key `tunery` and the token `token`."""
    state = TransitServer()
    state.create("tunery")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply({})

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            self._reply(json.loads(self.rfile.read(length) or b"{}"))

        def _reply(self, body: dict[str, Any]) -> None:
            token = self.headers.get("X-Vault-Token", "")
            try:
                data = state.answer(self.command, self.path, token, body)
                status, reply = (204, b"") if data is None else (200, _json({"data": data}))
            except RefusedError as refused:
                status, reply = refused.status, _json({"errors": [str(refused)]})
            self.send_response(status)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _json(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()
