"""`/healthz`, `/readyz`, `/metrics` of a process, on its own port.

It is one of this machine alone, unless `TUNERY_METRICS_HOST` says otherwise. They answer from a
thread, so they do also while the event loop is busy, and need no key. The gateway has routes with
these names for the outside, too.
"""

import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tunery.runtime.health import Health
from tunery.runtime.journal import alarm

LOOPBACK: Final = "127.0.0.1"
READ_S_MAX: Final = 10


class Probes:
    """The server; `health` is None until the process is connected to its servers."""

    def __init__(self, port: int, host: str = LOOPBACK) -> None:
        """Listen from now on. Raises OSError when the port is taken. Port 0: a free one."""
        self.health: Health | None = None
        self._server = ThreadingHTTPServer((host, port), self._handler())
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="probes", daemon=True).start()

    def close(self) -> None:
        """Listen no longer."""
        self._server.shutdown()
        self._server.server_close()

    def readiness(self) -> tuple[HTTPStatus, dict[str, Any]]:
        """Return status and body of `/readyz`.

        The status is 503 while the process starts or rebuilds a view, while one of its hosts does
        not run, and once it has stopped a partition.
        """
        if self.health is None:
            return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "starting"}
        stopped, failing = alarm.stopped_partitions(), dict(self.health.failing)
        body: dict[str, Any] = {}
        if failing:
            body["hosts"] = failing
        if stopped:
            body["partitions"] = dict(stopped)
        if self.health.unconfined:
            body["unconfined"] = dict(self.health.unconfined)
        if failing or stopped:
            return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "not ready", **body}
        if not self.health.has_started:
            return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "starting", **body}
        return HTTPStatus.OK, {"status": "ready", **body}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        probes = self

        class ProbeHandler(BaseHTTPRequestHandler):
            timeout = READ_S_MAX

            def do_GET(self) -> None:  # the name that http.server asks for
                match self.path.partition("?")[0]:
                    case "/healthz":
                        self._answer_json(HTTPStatus.OK, {"status": "ok"})
                    case "/readyz":
                        self._answer_json(*probes.readiness())
                    case "/metrics":
                        self._answer(HTTPStatus.OK, generate_latest(), CONTENT_TYPE_LATEST)
                    case _:
                        self._answer_json(HTTPStatus.NOT_FOUND, {"status": "not found"})

            def _answer_json(self, status: HTTPStatus, body: dict[str, Any]) -> None:
                self._answer(status, json.dumps(body).encode(), "application/json")

            def _answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
                self.send_response(status)
                self.send_header("content-type", content_type)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its own name
                """Log nothing: probes come every few seconds."""

        return ProbeHandler
