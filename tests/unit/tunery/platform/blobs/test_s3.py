"""A server that is not S3 counts as unavailable storage."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from tunery.platform.blobs.s3 import S3Blobs, S3Settings
from tunery.runtime.blobs.abstract import PART_BYTES, BlobsUnavailable


@pytest.fixture
def address() -> Iterator[str]:
    """A server that answers everything with the beginning of a page."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_response(200)
            self.send_header("content-length", "6")
            self.end_headers()
            self.wfile.write(b"<html>")

        do_POST = do_PUT = _answer  # noqa: N815  # names of http.server

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


async def test_an_unreadable_response_counts_as_an_outage(address: str) -> None:
    blobs = S3Blobs(S3Settings(address, "key", "secret-secret", "bucket"))
    upload = await blobs.upload("t/a/b")
    with pytest.raises(BlobsUnavailable):
        await upload.write(b"x" * (PART_BYTES + 1))
    await upload.abort()
    await blobs.close()
