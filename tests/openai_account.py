"""A stand-in for the parts of OpenAI's API that list files and fine-tuning jobs, by its reference.

It can limit requests, cut connections, lose files, revoke its key and have thousands of jobs.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.http_server import answering

KEY: Final = "sk-export-1"
BASE: Final = "gpt-4o-mini-2024-07-18"


@dataclass
class AccountStub:
    """What the account has, what goes wrong, and what was asked.

    gone: ids of files whose content is refused, with status and message
    limited: so many requests are answered 429, with `retry-after`
    cut: after so many bytes of content the connection ends, once for each entry
    before: called with the path of each request before it is answered
    """

    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    gone: dict[str, tuple[int, str]] = field(default_factory=dict)
    limited: int = 0
    cut: list[int] = field(default_factory=list)
    ranges: bool = True
    refusal: tuple[int, str] | None = None
    before: Callable[[str], None] = lambda _path: None
    asked: list[str] = field(default_factory=list)
    sent_bytes: Counter[str] = field(default_factory=Counter)
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add_file(self, file_id: str, content: bytes, **fields: Any) -> str:
        self.contents[file_id] = content
        self.files[file_id] = {
            "id": file_id,
            "object": "file",
            "bytes": len(content),
            "created_at": 1_700_000_000,
            "filename": f"{file_id}-rows.jsonl",
            "purpose": "fine-tune",
            "status": "processed",
            **fields,
        }
        return file_id

    def add_job(self, job_id: str, training_file: str, **fields: Any) -> str:
        hyper = {"n_epochs": 3, "batch_size": 1, "learning_rate_multiplier": 1.8}
        job = {
            "id": job_id,
            "object": "fine_tuning.job",
            "created_at": 1_700_000_000 + len(self.jobs),
            "finished_at": 1_700_000_900,
            "model": BASE,
            "organization_id": "org-1",
            "fine_tuned_model": f"ft:{BASE}:acme:faq:{job_id[-4:]}",
            "status": "succeeded",
            "training_file": training_file,
            "validation_file": None,
            "result_files": [],
            "trained_tokens": 1_000,
            "error": None,
            "seed": 7,
            "hyperparameters": hyper,
            "method": {"type": "supervised", "supervised": {"hyperparameters": hyper}},
            "metadata": {"team": "search"},
            **fields,
        }
        self.jobs.insert(0, job)
        return job_id

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer a request as the API would."""
        url = urlsplit(handler.path)
        path = url.path.removeprefix("/v1")
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        with self.lock:
            self.asked.append(path)
            limited = self.limited > 0
            self.limited -= limited
        self.before(path)
        if handler.headers["authorization"] != f"Bearer {KEY}":
            return _error(handler, 401, "Incorrect API key provided.", "invalid_api_key")
        if self.refusal is not None:
            return _error(handler, *self.refusal)
        if limited:
            return _error(handler, 429, "Rate limit reached.", "rate_limit_exceeded", "0.01")
        match path.strip("/").split("/"):
            case ["files"]:
                return _page(handler, [*self.files.values()], query)
            case ["files", file_id] if file_id in self.files:
                return _json(handler, self.files[file_id])
            case ["files", file_id, "content"] if file_id in self.gone:
                return _error(handler, *self.gone[file_id])
            case ["files", file_id, "content"] if file_id in self.contents:
                return self._content(handler, file_id)
            case ["fine_tuning", "jobs"]:
                return _page(handler, self.jobs, query)
            case ["fine_tuning", "jobs", job_id, "events"]:
                return _page(handler, _events(job_id), query)
            case ["fine_tuning", "jobs", job_id, "checkpoints"]:
                return _page(handler, [_checkpoint(job_id)], query)
            case _:
                return _error(handler, 404, f"No such object: {path}", "not_found")

    def _content(self, handler: BaseHTTPRequestHandler, file_id: str) -> None:
        content = self.contents[file_id]
        begun = 0
        if self.ranges and (asked := handler.headers["range"]):
            begun = int(asked.removeprefix("bytes=").removesuffix("-"))
        handler.send_response(206 if begun else 200)
        if begun:
            last = len(content) - 1
            handler.send_header("content-range", f"bytes {begun}-{last}/{len(content)}")
        handler.send_header("content-type", "application/octet-stream")
        handler.send_header("content-length", str(len(content) - begun))
        handler.end_headers()
        with self.lock:
            end = begun + self.cut.pop(0) if self.cut else len(content)
            self.sent_bytes[file_id] += len(content[begun:end])
        handler.wfile.write(content[begun:end])
        handler.close_connection = True


@contextmanager
def account_stub() -> Iterator[AccountStub]:
    """The stand-in, on a free port of this machine."""
    stub = AccountStub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stub.answer(self)

    with answering(Handler) as url:
        stub.url = f"{url}/v1"
        yield stub


def rows(count: int = 12) -> bytes:
    """Rows in OpenAI's form."""
    talks = (
        [
            {"role": "user", "content": f"What is {number} and {number}?"},
            {"role": "assistant", "content": f"It is {2 * number}."},
        ]
        for number in range(count)
    )
    return b"".join(json.dumps({"messages": talk}).encode() + b"\n" for talk in talks)


def _events(job_id: str) -> list[dict[str, Any]]:
    return [
        {
            "id": f"ftevent-{job_id}",
            "object": "fine_tuning.job.event",
            "level": "info",
            "created_at": 1_700_000_900,
            "message": "The job has successfully completed",
        }
    ]


def _checkpoint(job_id: str) -> dict[str, Any]:
    return {
        "id": f"ftckpt-{job_id}",
        "object": "fine_tuning.job.checkpoint",
        "created_at": 1_700_000_800,
        "fine_tuning_job_id": job_id,
        "step_number": 10,
        "fine_tuned_model_checkpoint": f"ft:{BASE}:ckpt",
        "metrics": {"train_loss": 0.5},
    }


def _page(
    handler: BaseHTTPRequestHandler, items: list[dict[str, Any]], query: dict[str, str]
) -> None:
    ids = [item["id"] for item in items]
    first = ids.index(query["after"]) + 1 if "after" in query else 0
    limit = int(query.get("limit", 10_000 if "purpose" in query else 20))
    listed = items[first : first + limit]
    more = len(items) > first + limit
    ends = {"first_id": listed[0]["id"], "last_id": listed[-1]["id"]} if listed else {}
    _json(handler, {"object": "list", "data": listed, "has_more": more, **ends})


def _error(
    handler: BaseHTTPRequestHandler,
    status: int,
    message: str,
    code: str | None = None,
    retry_after: str | None = None,
) -> None:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    _json(handler, {"error": error}, status, retry_after)


def _json(
    handler: BaseHTTPRequestHandler, body: Any, status: int = 200, retry_after: str | None = None
) -> None:
    data = json.dumps(body).encode()
    handler.send_response(status)
    if retry_after is not None:
        handler.send_header("retry-after", retry_after)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)
