"""A webhook receiver on 127.0.0.1, as a customer would run one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BODY_BYTES_MAX = 20_000
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Received:
    """One POST: headers by lower-case name, and the body."""

    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """Every POST that arrived, in order."""

    port: int = 0
    received: list[Received] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/hook"


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver on a free port; it answers every POST with 204."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = min(int(self.headers.get("content-length", "0")), BODY_BYTES_MAX)
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.received.append(Received(headers, self.rfile.read(length)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing: the demo prints a line itself."""

    server = ThreadingHTTPServer((HOST, 0), Handler)
    receiver.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
