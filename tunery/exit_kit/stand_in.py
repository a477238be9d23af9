"""A stand-in for the parts of OpenAI's API that an account is read by, written from its reference.

The demo and the tests move away from it; no real account was ever read. It can limit requests, cut
connections, lose files, revoke its key, retire models and have thousands of jobs.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

KEY: Final = "sk-export-1"
BASE: Final = "gpt-4o-mini-2024-07-18"


@dataclass
class AccountStub:
    """What the account has, what goes wrong, and what was asked.

    runs: by eval; output_items: by run; messages: what was asked, by stored completion
    answers: what a model answers to the messages of a request; a model that is not here is retired
    gone: ids of files whose content is refused, with status and message
    refusal: of every request; refused: by path
    limited: so many requests are answered 429, with `retry-after`
    cut: after so many bytes of content the connection ends, once for each entry
    before: called with the path of each request before it is answered
    """

    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    contents: dict[str, bytes] = field(default_factory=dict)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    evals: list[dict[str, Any]] = field(default_factory=list)
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    output_items: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    completions: list[dict[str, Any]] = field(default_factory=list)
    messages: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    answers: dict[str, Callable[[list[dict[str, Any]]], str]] = field(default_factory=dict)
    gone: dict[str, tuple[int, str]] = field(default_factory=dict)
    limited: int = 0
    cut: list[int] = field(default_factory=list)
    ranges: bool = True
    refusal: tuple[int, str] | None = None
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)
    before: Callable[[str], None] = lambda _path: None
    asked: list[str] = field(default_factory=list)
    questions: list[dict[str, Any]] = field(default_factory=list)  # bodies that models answered
    sent_bytes: Counter[str] = field(default_factory=Counter)
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add_file(self, file_id: str, content: bytes, **fields: Any) -> str:
        """Add a file; `fields` replace what the API would say of it."""
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
        """Add a job, newer than those before; `fields` replace what the API would say of it."""
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

    def add_eval(
        self, eval_id: str, model: str, asked: Mapping[str, tuple[str, str]], **fields: Any
    ) -> str:
        """Add an eval with one run. asked: question to the reference and the model's answer."""
        run_id = f"evalrun-{eval_id}"
        criterion = {
            "type": "string_check",
            "name": "right",
            "operation": "eq",
            "input": "{{sample.output_text}}",
            "reference": "{{item.right}}",
        }
        self.evals.append(
            {
                "id": eval_id,
                "object": "eval",
                "created_at": 1_700_000_000,
                "name": eval_id,
                "metadata": {},
                "data_source_config": {"type": "custom", "schema": {"type": "object"}},
                "testing_criteria": [criterion],
                **fields,
            }
        )
        source = {"type": "file_content", "content": []}
        self.runs[eval_id] = [
            {
                "id": run_id,
                "object": "eval.run",
                "eval_id": eval_id,
                "created_at": 1_700_000_100,
                "name": "nightly",
                "model": model,
                "status": "completed",
                "data_source": {"type": "completions", "model": model, "source": source},
            }
        ]
        self.output_items[run_id] = [
            {
                "id": f"outputitem-{eval_id}-{number}",
                "object": "eval.run.output_item",
                "created_at": 1_700_000_101,
                "eval_id": eval_id,
                "run_id": run_id,
                "status": "pass",
                "datasource_item_id": number,
                "datasource_item": {"question": question, "right": right},
                "results": [{"name": "right", "passed": answer == right, "score": 1.0}],
                "sample": {
                    "model": model,
                    "finish_reason": "stop",
                    "input": [{"role": "user", "content": question}],
                    "output": [{"role": "assistant", "content": answer}],
                },
            }
            for number, (question, (right, answer)) in enumerate(asked.items())
        ]
        return eval_id

    def add_completion(
        self, completion_id: str, model: str, question: str, answer: str, **message: Any
    ) -> str:
        """Add a stored completion with one question. message: further fields of the answer."""
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "logprobs": None,
            "message": {"role": "assistant", "content": answer, "refusal": None, **message},
        }
        self.completions.append(
            {
                "id": completion_id,
                "object": "chat.completion",
                "created": 1_700_000_000,
                "model": model,
                "metadata": {},
                "choices": [choice],
            }
        )
        self.messages[completion_id] = [
            {"id": f"{completion_id}-0", "role": "user", "content": question, "name": None}
        ]
        return completion_id

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
        if path in self.refused:
            return _error(handler, *self.refused[path])
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
            case ["evals"]:
                return _page(handler, self.evals, query)
            case ["evals", eval_id, "runs"] if eval_id in self.runs:
                return _page(handler, self.runs[eval_id], query)
            case ["evals", _, "runs", run_id, "output_items"] if run_id in self.output_items:
                return _page(handler, self.output_items[run_id], query)
            case ["chat", "completions"] if handler.command == "POST":
                return self._complete(handler)
            case ["chat", "completions"]:
                return _page(handler, self.completions, query)
            case ["chat", "completions", asked, "messages"] if asked in self.messages:
                return _page(handler, self.messages[asked], query)
            case _:
                return _error(handler, 404, f"No such object: {path}", "not_found")

    def _complete(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer with a model; a word is a token."""
        body = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        if (answers := self.answers.get(body["model"])) is None:
            text = f"The model `{body['model']}` has been deprecated or does not exist"
            _error(handler, 404, text, "model_not_found")
            return
        text = answers(body["messages"])
        prompt_tokens = sum(len(str(message["content"]).split()) for message in body["messages"])
        completion_tokens = min(len(text.split()), body.get("max_completion_tokens", 512))
        with self.lock:
            self.questions.append(body)
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "logprobs": None,
            "message": {"role": "assistant", "content": text, "refusal": None},
        }
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        }
        completion = {
            "id": f"chatcmpl-{len(self.questions)}",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": body["model"],
            "choices": [choice],
            "usage": usage,
        }
        _json(handler, completion)

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
def account_stub(of: type[AccountStub] = AccountStub) -> Iterator[AccountStub]:
    """The stand-in, on a free port of this machine. of: of which service"""
    stub = of()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stub.answer(self)

        def do_POST(self) -> None:
            stub.answer(self)

        def log_message(self, *_: object) -> None:
            """Print nothing: `asked` has what was asked."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        stub.url = f"http://127.0.0.1:{server.server_port}/v1"
        try:
            yield stub
        finally:
            server.shutdown()
            thread.join()


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
