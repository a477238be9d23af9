"""A server on this machine with the routes of vLLM 0.32 or SGLang 0.5.23 that the engine uses.

It stands in for them where they are too large to start: routes, statuses and forms of answers are
those of their sources, and it listens on a real port. That the real ones answer so too is shown
for vLLM alone, by `make test-vllm`.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final, Literal, TypeAlias

from tokenizers import Tokenizer

from schemas.training import ADAPTER_FILES
from tunery.work.answers import TokensEnded, TokenWritten

Answer: TypeAlias = tuple[int, Any]
Events: TypeAlias = Iterator[TokenWritten | TokensEnded]
#: folder of the adapter or None, and the body of the question; the last event ends the answer
Writer: TypeAlias = Callable[[Path | None, dict[str, Any]], Events]
VERSIONS: Final = {"vllm": "0.32.0", "sglang": "0.5.23"}
END: Final = 2  # the token that ends an answer


@dataclass
class InferenceServer:
    """A server of one base model."""

    base: Path
    writer: Writer
    kind: Literal["vllm", "sglang"] = "vllm"
    root: str | None = None  # what it says of the base model's folder; None: its path
    key: str | None = None  # which requests must have; None: any
    context_length: int | None = 512
    version: str = ""  # empty: the one whose routes these are
    loads: bool = True  # whether it loads adapters while it runs
    usage: dict[str, Any] = field(default_factory=dict)  # what it says of tokens, if not the truth
    url: str = ""
    # folders by name; gone when it starts again
    adapters: dict[str, str] = field(default_factory=dict)
    # routes with their bodies, in order
    requests: list[tuple[str, Any]] = field(default_factory=list)
    abandoned: int = 0  # answers that their clients left

    def __post_init__(self) -> None:
        self._tokenizer = Tokenizer.from_file(str(self.base / "tokenizer.json"))

    @property
    def folder(self) -> str:
        return self.root or str(self.base)

    @property
    def own_name(self) -> str:
        """Name of the base model: its folder, unless the server was started with another."""
        return self.folder

    def asked(self, route: str) -> list[Any]:
        """Bodies of the requests to a route."""
        return [body for path, body in self.requests if path == route]

    def answer(self, route: str, body: Any, authorization: str | None) -> Answer:
        """Status and body; an iterator is the parts of a stream."""
        self.requests.append((route, body))
        if self.key is not None and authorization != f"Bearer {self.key}":
            return 401, {"error": "Unauthorized"}
        sglang = self.kind == "sglang"
        prefix = "" if sglang else "/v1"
        if route == "/v1/models":
            return 200, {"object": "list", "data": self._cards()}
        if route == ("/server_info" if sglang else "/version"):
            return 200, {"version": self.version or VERSIONS[self.kind]}
        if route == "/openapi.json":
            return 200, {"paths": {f"{prefix}/load_lora_adapter": {}} if self.loads else {}}
        if route == "/model_info" and sglang:
            return 200, {"model_path": self.folder, "is_generation": True}
        if route == f"{prefix}/load_lora_adapter":
            return self._loaded(body)
        if route == f"{prefix}/unload_lora_adapter":
            return self._unloaded(body)
        if route == "/v1/completions":
            return self._completion(body)
        return 404, {"detail": "Not Found"}

    def _cards(self) -> list[dict[str, Any]]:
        base = {"id": self.own_name, "object": "model", "parent": None, "root": self.own_name}
        cards = [{**base, "max_model_len": self.context_length}]
        for name, folder in self.adapters.items():
            cards.append({**base, "id": name, "root": folder, "parent": self.own_name})
        return cards

    def _loaded(self, body: dict[str, Any]) -> Answer:
        name, folder = body["lora_name"], body["lora_path"]
        if name in self.adapters:
            return self._changed(f"The lora adapter '{name}' has already been loaded.", 400)
        if not (Path(folder) / ADAPTER_FILES[0]).is_file():
            return self._changed(f"No adapter found for '{folder}'", 404)
        rank = json.loads((Path(folder) / ADAPTER_FILES[1]).read_bytes())["r"]
        if rank > 16:
            return self._changed(f"LoRA rank {rank} is greater than max_lora_rank 16.", 500)
        self.adapters[name] = folder
        return self._changed(f"Success: LoRA adapter '{name}' added successfully.", 200)

    def _unloaded(self, body: dict[str, Any]) -> Answer:
        name = body["lora_name"]
        if self.adapters.pop(name, None) is None:
            return self._changed(f"The lora adapter '{name}' cannot be found.", 404)
        return self._changed(f"Success: LoRA adapter '{name}' removed successfully.", 200)

    def _changed(self, message: str, status: int) -> Answer:
        """vLLM says success as text and has many statuses; SGLang has two, and JSON."""
        if self.kind == "sglang":
            error = None if status == 200 else message
            content = {"success": error is None, "error_message": error}
            return min(status, 400), {**content, "loaded_adapters": self.adapters}
        return status, message if status == 200 else _error(message, status)

    def _completion(self, body: dict[str, Any]) -> Answer:
        if self.kind == "sglang":
            known, name = True, body.get("lora_path")
        else:
            known = body["model"] in (self.own_name, *self.adapters)
            name = None if body["model"] == self.own_name else body["model"]
        if not known or (name is not None and name not in self.adapters):
            return 404, _error(f"The model `{body['model']}` does not exist.", 404)
        if len(body["prompt"]) + body["max_tokens"] > (self.context_length or 1 << 20):
            return 400, _error("The prompt is too long.", 400)
        if "name" not in (body.get("response_format") or {}).get("json_schema", {"name": None}):
            return 400, _error("response_format.json_schema.name: Field required", 400)
        folder = None if name is None else Path(self.adapters[name])
        return 200, self._stream(self.writer(folder, body), body)

    def _stream(self, events: Events, body: dict[str, Any]) -> Iterator[str]:
        """The parts of a streamed completion: its last token comes with the reason of the end."""
        pending: TokenWritten | None = None
        for event in events:
            if isinstance(event, TokenWritten):
                if pending is not None:
                    yield self._part(pending, body)
                pending = event
                continue
            if event.finish_reason == "stop":
                if pending is not None:
                    yield self._part(pending, body)
                pending = TokenWritten(0, END, -0.1)
            if pending is not None:
                yield self._part(pending, body, event.finish_reason)
            details = {"cached_tokens": 1}
            usage = {"prompt_tokens": len(body["prompt"]), "prompt_tokens_details": details}
            yield json.dumps({"choices": [], "usage": usage | self.usage})
        yield "[DONE]"

    def _part(self, token: TokenWritten, body: dict[str, Any], end: str | None = None) -> str:
        choice = {
            "index": 0,
            "text": self._tokenizer.decode([token.token]),
            "finish_reason": end,
            "token_ids": [token.token],
            "logprobs": None if body.get("logprobs") is None else self._logprobs(token),
        }
        return json.dumps({"object": "text_completion", "choices": [choice]})

    def _logprobs(self, token: TokenWritten) -> dict[str, Any]:
        own = (token.token, token.logprob)
        likely = [own, *(pair for pair in token.likely if pair[0] != token.token)]
        return {
            "tokens": [self._name(token.token)],
            "token_logprobs": [token.logprob],
            "top_logprobs": [{self._name(number): logprob for number, logprob in likely}],
        }

    def _name(self, token: int) -> str:
        if self.kind == "sglang":
            return str(self._tokenizer.decode([token]))
        return f"token_id:{token}"


def _error(message: str, status: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": "Error", "param": None, "code": status}}


@contextmanager
def serving(server: InferenceServer, port: int = 0) -> Iterator[InferenceServer]:
    """Serve on a free port, or on this one; sets its `url`. Adapters are gone at the end."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            self._answer(json.loads(self.rfile.read(length)))

        def _answer(self, body: Any) -> None:
            status, content = server.answer(self.path, body, self.headers.get("authorization"))
            self.send_response(status)
            self.end_headers()
            try:
                if isinstance(content, Iterator):
                    for part in content:
                        self.wfile.write(f"data: {part}\n\n".encode())
                else:
                    text = content if isinstance(content, str) else json.dumps(content)
                    self.wfile.write(text.encode())
            except ConnectionError:
                server.abandoned += 1

        def log_message(self, *_: Any) -> None:
            """Nothing: `requests` has them."""

    class Listener(ThreadingHTTPServer):
        daemon_threads = True  # an answer that is not read to its end ends with the test

    with Listener(("127.0.0.1", port), Handler) as listener:
        thread = Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        server.url = f"http://127.0.0.1:{listener.server_port}"
        try:
            yield server
        finally:
            listener.shutdown()
            thread.join()
            server.adapters.clear()
