"""vLLM and SGLang over HTTP: what a server has in memory, its adapters, and tokens of an answer.

Prompts go out as token ids and answers come back as token ids, so the server's own tokenizer and
chat template decide nothing. Neither questions nor the key are logged.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx
import msgspec
from msgspec import Struct, field

from tunery.work.engine_rows import Driver

CONNECT_S_MAX: Final = 5
SILENT_S_MAX: Final = 120  # between two tokens, and while an adapter is loaded
OK: Final = 200
DATA: Final = "data: "
DONE: Final = "[DONE]"


class ServerAway(Exception):
    """The server does not answer, or answers with something unexpected, which the message has."""


# not frozen: the standard library sets tracebacks on exceptions as they travel
@dataclass(eq=False)
class ServerRefused(Exception):
    """The server refuses a request."""

    status: int  # HTTP status
    message: str  # may repeat what was asked


@dataclass(frozen=True)
class ServerModels:
    """Models that an inference server has loaded."""

    base: str  # name of the base model at the server
    folder: str  # where it was loaded from, as the server says it
    context_length: int | None  # tokens of the longest sequence; None: unknown
    adapters: Mapping[str, str]  # the folder of each, as the server says it, by name


class ModelCard(Struct):
    """An entry of `GET /v1/models`; adapters have a `parent`."""

    id: str
    root: str | None = None
    parent: str | None = None
    max_model_len: int | None = None


class ModelCards(Struct):
    data: list[ModelCard]


class ModelInfo(Struct):
    """Model information of SGLang, whose cards of base models have no folder."""

    model_path: str


class ChunkLogprobs(Struct):
    """Log-probabilities of the tokens of a chunk."""

    token_logprobs: list[float | None] = field(default_factory=list)
    # likely alternatives of each token, by their text or as `token_id:` and the id
    top_logprobs: list[dict[str, float] | None] | None = None


class StreamedChoice(Struct):
    token_ids: list[int] | None = None
    logprobs: ChunkLogprobs | None = None
    finish_reason: str | None = None
    text: str = ""


class PromptDetails(Struct):
    cached_tokens: int | None = None


class ChunkUsage(Struct):
    prompt_tokens_details: PromptDetails | None = None


class ChunkError(Struct):
    message: str = ""
    code: int | str | None = None


class Chunk(Struct):
    """A part of a streamed completion."""

    choices: list[StreamedChoice] = field(default_factory=list)
    usage: ChunkUsage | None = None
    error: ChunkError | None = None

    @property
    def cached_tokens(self) -> int:
        """Cached tokens of the prompt; 0 where the server does not report them."""
        details = None if self.usage is None else self.usage.prompt_tokens_details
        return (details.cached_tokens if details else None) or 0


class VllmServer:
    """A vLLM server with one base model.

    It loads adapters while it runs only with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True.
    """

    name = "vLLM"
    load_route = "/v1/load_lora_adapter"
    unload_route = "/v1/unload_lora_adapter"

    def __init__(self, url: str, key: str | None = None) -> None:
        self.url = url
        self._http = httpx.Client(
            base_url=url,
            headers={} if key is None else {"authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(SILENT_S_MAX, connect=CONNECT_S_MAX),
            # a connection that is kept would be broken when a server has started again
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            trust_env=False,
        )

    def models(self) -> ServerModels:
        """Return the models that the server has loaded. Raises ServerAway, ServerRefused."""
        cards = self._get("/v1/models", ModelCards).data
        base = next((card for card in cards if card.parent is None), None)
        if base is None:
            raise ServerAway("it names no base model")
        adapters = {card.id: card.root or "" for card in cards if card.parent is not None}
        return ServerModels(base.id, self._base_folder(base), base.max_model_len, adapters)

    def load(self, name: str, folder: str) -> None:
        """Load an adapter from a folder that the server can read.

        Raises ServerAway, ServerRefused.
        """
        self._post(self.load_route, {"lora_name": name, "lora_path": folder})

    def unload(self, name: str) -> None:
        """Free the memory of an adapter. Raises ServerAway, ServerRefused."""
        self._post(self.unload_route, {"lora_name": name})

    def model_fields(self, models: ServerModels, adapter: str | None) -> dict[str, str]:
        """How a completion names the base model, or an adapter of it."""
        return {"model": adapter or models.base}

    @contextlib.contextmanager
    def completion(self, body: Mapping[str, Any]) -> Iterator[Iterator[Chunk]]:
        """The parts of a streamed completion; the server stops when the context ends.

        Raises ServerAway, ServerRefused.
        """
        try:
            with self._http.stream("POST", "/v1/completions", json=body) as reply:
                if reply.status_code != OK:
                    reply.read()
                    raise _refusal_of(reply)
                yield _chunks(reply)
        except httpx.HTTPError as error:
            raise ServerAway(repr(error)) from error

    def _base_folder(self, card: ModelCard) -> str:
        return card.root or ""

    def _get(self, route: str, type_: type[Any]) -> Any:
        try:
            reply = self._http.get(route)
        except httpx.HTTPError as error:
            raise ServerAway(repr(error)) from error
        if reply.status_code != OK:
            raise _refusal_of(reply)
        try:
            return msgspec.json.decode(reply.content, type=type_)
        except msgspec.MsgspecError as error:
            raise ServerAway(f"{route}: {error}") from error

    def _post(self, route: str, body: Mapping[str, str]) -> None:
        try:
            reply = self._http.post(route, json=body)
        except httpx.HTTPError as error:
            raise ServerAway(repr(error)) from error
        if reply.status_code != OK:
            raise _refusal_of(reply)


class SglangServer(VllmServer):
    """An SGLang server with one base model, started with `--enable-lora`."""

    name = "SGLang"
    load_route = "/load_lora_adapter"
    unload_route = "/unload_lora_adapter"

    def model_fields(self, models: ServerModels, adapter: str | None) -> dict[str, str]:
        """How a completion names the base model, or an adapter of it."""
        return {"model": models.base} | ({} if adapter is None else {"lora_path": adapter})

    def _base_folder(self, card: ModelCard) -> str:
        info: ModelInfo = self._get("/model_info", ModelInfo)
        return info.model_path


SERVERS: Final[Mapping[Driver, type[VllmServer]]] = {"vllm": VllmServer, "sglang": SglangServer}


def _chunks(reply: httpx.Response) -> Iterator[Chunk]:
    for line in reply.iter_lines():
        if not line.startswith(DATA) or (data := line.removeprefix(DATA)) == DONE:
            continue
        try:
            chunk = msgspec.json.decode(data, type=Chunk)
        except msgspec.MsgspecError as error:
            raise ServerAway(f"a part of an answer cannot be read: {error}") from error
        if chunk.error is not None:
            code = chunk.error.code
            raise ServerRefused(code if isinstance(code, int) else 500, chunk.error.message)
        yield chunk


def _refusal_of(reply: httpx.Response) -> ServerRefused:
    """Return the error of a reply; vLLM and SGLang have several formats of it."""
    message = reply.text
    with contextlib.suppress(ValueError):
        content = reply.json()
        inner = content.get("error", content) if isinstance(content, dict) else content
        texts = (
            [inner.get(name) for name in ("message", "error_message")]
            if isinstance(inner, dict)
            else [inner]
        )
        message = next((text for text in texts if isinstance(text, str) and text), message)
    return ServerRefused(reply.status_code, message[:500])
