"""A hub on this machine that speaks as much of Hugging Face's protocol as a download needs."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from tests.http_server import answering

COMMIT: Final = "12fd25f77366fa6b3b4b768ec3050bf629380bac"


@dataclass
class HubServer:
    """Its models are folders by name. damaged: files of which it sends other bytes. token: of who
    may read; None: everybody. requests: their paths.
    """

    models: dict[str, Path]
    url: str = ""
    damaged: set[str] = field(default_factory=set)
    token: str | None = None
    licence: str = "apache-2.0"
    requests: list[str] = field(default_factory=list)

    @property
    def environ(self) -> dict[str, str]:
        return {"HF_ENDPOINT": self.url}

    def answer(self, path: str, authorization: str | None) -> tuple[int, bytes]:
        """Status and body of a GET."""
        self.requests.append(path)
        if self.token is not None and authorization != f"Bearer {self.token}":
            return 401, b"Access to this model is restricted"
        for name, folder in self.models.items():
            if path in (f"/api/models/{name}/revision/{r}" for r in ("main", "v1", COMMIT)):
                return 200, json.dumps(self._described(folder)).encode()
            resolved = f"/{name}/resolve/{COMMIT}/"
            if path.startswith(resolved):
                file = path.removeprefix(resolved)
                content = (folder / file).read_bytes()
                return 200, content[::-1] if file in self.damaged else content
        return 404, b"not found"

    def _described(self, folder: Path) -> dict[str, Any]:
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files = [_described(path, path.relative_to(folder).as_posix()) for path in paths]
        return {"sha": COMMIT, "siblings": files, "cardData": {"license": self.licence}}


def _described(path: Path, name: str) -> dict[str, Any]:
    content = path.read_bytes()
    if name.endswith(".safetensors"):
        sha256 = hashlib.sha256(content).hexdigest()
        return {"rfilename": name, "lfs": {"sha256": sha256, "size": len(content)}}
    git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
    return {"rfilename": name, "size": len(content), "blobId": git.hexdigest()}


@contextmanager
def serving(hub: HubServer) -> Iterator[HubServer]:
    """Serve a hub on a free port; sets its `url`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(self.path.partition("?")[0])
            status, body = hub.answer(path, self.headers.get("authorization"))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with answering(Handler) as hub.url:
        yield hub
