"""Objects by signed URLs, against a storage that a test answers for."""

import hashlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from services.cluster.domain.link import SignedUrl, UrlRequest
from services.cluster.pod.agent_blobs import AgentBlobs
from services.cluster.pod.agent_client import AgentRefuses
from tests.http_server import answering
from tunery.runtime.blobs.abstract import BlobCorrupt, BlobMissing, BlobsUnavailable

CONTENT = b"weights" * 10_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
OBJECTS: dict[str, bytes] = {}


class Storage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content = OBJECTS.get(self.path)
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        matches = hashlib.sha256(content).hexdigest() == self.headers["x-sha256"]
        if matches:
            OBJECTS[self.path] = content
        self.send_response(200 if matches else 400)
        self.send_header("Content-Length", "0")
        self.end_headers()


class Agent:
    """Signs URLs, or refuses to."""

    def __init__(self, url: str) -> None:
        self.url_of_storage, self.refuses = url, False

    async def url(self, request: UrlRequest) -> SignedUrl:
        if self.refuses:
            raise AgentRefuses("/v1/url: 403")
        headers = {"Content-Length": str(request.size), "x-sha256": request.sha256}
        signed = headers if request.method == "PUT" else {}
        return SignedUrl(url=f"{self.url_of_storage}/{request.key}", headers=signed)


@pytest.fixture
def agent() -> Iterator[Agent]:
    OBJECTS.clear()
    with answering(Storage) as url:
        yield Agent(url)


async def test_what_is_put_is_read_again(agent: Agent, tmp_path: Path) -> None:
    blobs = AgentBlobs(agent, tmp_path)
    stored = await blobs.put("t/acme/x", CONTENT, sha256=SHA256)
    assert (stored.sha256, stored.bytes) == (SHA256, len(CONTENT))
    assert await blobs.get("t/acme/x", sha256=SHA256) == CONTENT
    await blobs.get_file("t/acme/x", tmp_path / "copy", sha256=SHA256)
    await blobs.put_file("t/acme/y", tmp_path / "copy")
    assert OBJECTS == {"/t/acme/x": CONTENT, "/t/acme/y": CONTENT}
    await blobs.close()


async def test_wrong_bytes_are_neither_put_nor_read(agent: Agent, tmp_path: Path) -> None:
    blobs = AgentBlobs(agent, tmp_path)
    with pytest.raises(BlobCorrupt):
        await blobs.put("t/acme/x", CONTENT, sha256="0" * 64)
    assert OBJECTS == {}
    OBJECTS["/t/acme/x"] = b"other"
    with pytest.raises(BlobCorrupt):
        await blobs.get("t/acme/x", sha256=SHA256)
    await blobs.close()


async def test_missing_objects_differ_from_an_outage(agent: Agent, tmp_path: Path) -> None:
    blobs = AgentBlobs(agent, tmp_path)
    with pytest.raises(BlobMissing):
        await blobs.get("t/acme/x")
    agent.refuses = True
    with pytest.raises(BlobsUnavailable, match="403"):
        await blobs.get("t/acme/x")
    agent.refuses, agent.url_of_storage = False, "http://127.0.0.1:1"
    with pytest.raises(BlobsUnavailable, match="ConnectError"):
        await blobs.put("t/acme/x", CONTENT)
    await blobs.close()
