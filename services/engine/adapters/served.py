"""Models that a vLLM or SGLang server computes: Tunery's template and tokens, the server's tensors.

A server has one base model. Its adapters are loaded while it runs, and are gone when it starts
again, so each question looks at what the server has, and `reconcile` does so every few seconds.
"""

import hmac
import logging
import os
import secrets
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError, safe_open

from schemas.training import ADAPTER_FILES
from services.engine.adapters.answer_text import AnswerStream, AnswerText, token_logprob
from services.engine.adapters.constraints import Constraint
from services.engine.adapters.inference_server import (
    Chunk,
    ChunkLogprobs,
    ServerAway,
    ServerModels,
    ServerRefused,
    VllmServer,
)
from services.engine.adapters.prompts import Prompts, too_long
from services.engine.adapters.server_folders import ServerFolders
from services.engine.ports import Refusal, Say, WeightFiles
from tunery.runtime.telemetry.logs import log_event
from tunery.work.engine import (
    BUSY,
    FAILED,
    MALFORMED,
    STALE_BASE,
    UNSUPPORTED,
    Question,
    QuestionRefused,
    Sampling,
)

LOG: Final = logging.getLogger("tunery.engine")
PREFIX: Final = "tunery-"  # of our adapters at a server
DIGITS: Final = 32
TOP_P_MIN: Final = 1e-6  # 0, which only takes the likeliest token, is none to vLLM
ID_MARK: Final = "token_id:"
AWAY: Final = "The server that computes answers is away. Try again shortly."
NOT_SERVED: Final = (
    "This base model is not served here. The operator can start a server with it, or add one to "
    "TUNERY_ENGINE_SERVERS."
)
CHANGED: Final = (
    "The files of this base model are not those that it was added with. The operator must restore "
    "them, and start the server again."
)
NOT_BOTH: Final = (
    "This engine holds no answer to a schema beside calls of tools. Leave out "
    "`response_format`, or force the call."
)
NO_TOKENS: Final = "the server returns no token ids; see `tunery model serve --check`"


@dataclass(frozen=True)
class ModelServer:
    """A server that has a model in memory, and all models that it has."""

    server: VllmServer
    models: ServerModels
    adapter: str | None  # None: the base model


class ServedEngine:
    """Implements `ReconciledLoader`.

    servers: those that serve the same base model are asked in this order
    folders: what servers call the folders of this machine, and which base models are in them
    """

    def __init__(
        self, servers: Sequence[VllmServer], folders: ServerFolders, *, context_tokens: int
    ) -> None:
        self._servers, self._folders = tuple(servers), folders
        self._context_tokens = context_tokens
        self._salt = secrets.token_bytes(32)
        self._lock = threading.Lock()  # of what is wanted, and of adapters at servers
        self._wanted = Counter[WeightFiles]()
        self._away: set[str] = set()

    def load(self, files: WeightFiles) -> "RemoteModel":
        """Raises Refusal where no server has the base model, or an adapter cannot be loaded."""
        prompts = Prompts(files)
        if files.adapter is not None:
            check_weights(files.adapter)
        with self._lock:
            self._wanted[files] += 1
        try:
            self.find_server(files)
        except BaseException:
            self.drop(files)
            raise
        return RemoteModel(self, files, prompts)

    def find_server(self, files: WeightFiles) -> ModelServer:
        """A server that has the model in memory, with an adapter that it lacked loaded.

        Raises Refusal.
        """
        name = name_of(files)
        away = False
        for server in self._servers:
            models = self._models_of(server)
            if models is None:
                away = True
            elif self._folders.holds(models.folder, files.base.stem):
                if name is not None and name not in models.adapters:
                    self._add(server, name, files)
                return ModelServer(server, models, name)
            elif self._folders.here(models.folder) == files.folder:
                raise Refusal(STALE_BASE, CHANGED)
        if away:
            raise Refusal(FAILED, AWAY)
        log_event(
            LOG, logging.ERROR, "base.not_served", folder=files.folder, sha256=files.base.stem
        )
        raise Refusal(UNSUPPORTED, NOT_SERVED)

    def drop(self, files: WeightFiles) -> None:
        """Free the memory of an adapter that is no longer wanted."""
        with self._lock:
            self._wanted -= Counter((files,))
        self._unload_unwanted()

    def reconcile(self) -> None:
        """Load again what a server lacks, and unload what was left there by an engine before."""
        with self._lock:
            wanted = list(self._wanted)
        for files in wanted:
            if files.adapter is not None and files.adapter.exists():
                os.utime(files.adapter)  # the cache of files keeps those that were used last
            try:
                self.find_server(files)
            except Refusal as refusal:
                log_event(LOG, logging.WARNING, "model.not_placed", why=refusal.message)
        self._unload_unwanted()

    def context_of(self, files: WeightFiles, models: ServerModels) -> int:
        """Tokens of a question and its answer at most."""
        lengths = (self._context_tokens, files.context_length, models.context_length)
        return min(length for length in lengths if length is not None)

    def salt_of(self, tenant: str) -> str:
        """Return the tenant's salt of the server's prompt cache, so that no tenant can time
        another's prompts.
        """
        return hmac.digest(self._salt, tenant.encode(), "sha256").hex()

    def _models_of(self, server: VllmServer) -> ServerModels | None:
        """Return the models at a server; None while it is away, which is logged once."""
        try:
            models = server.models()
        except (ServerAway, ServerRefused) as error:
            if server.url not in self._away:
                self._away.add(server.url)
                log_event(LOG, logging.WARNING, "server.away", url=server.url, why=why_of(error))
            return None
        if server.url in self._away:
            self._away.discard(server.url)
            log_event(LOG, logging.INFO, "server.back", url=server.url)
        return models

    def _add(self, server: VllmServer, name: str, files: WeightFiles) -> None:
        """Load an adapter unless another question just did. Raises Refusal."""
        with self._lock:
            try:
                if name in server.models().adapters:
                    return
                server.load(name, self._folders.at_server(files.adapter or files.base))
            except ServerAway as error:
                raise Refusal(FAILED, AWAY) from error
            except ServerRefused as error:
                why = why_of(error)
                log_event(LOG, logging.ERROR, "adapter.not_loaded", adapter=name, why=why)
                message = f"{server.name} cannot load this adapter; the engine's log says why."
                raise Refusal(UNSUPPORTED, message) from error
        log_event(LOG, logging.INFO, "adapter.loaded", adapter=name, url=server.url)

    def _unload_unwanted(self) -> None:
        """Unload our unwanted adapters at all servers, and leave those of other owners."""
        for server in self._servers:
            models = self._models_of(server)
            for name in self._ours(models) if models else ():
                with self._lock:
                    if name in map(name_of, self._wanted):
                        continue
                    try:
                        server.unload(name)
                    except (ServerAway, ServerRefused):
                        continue  # the next round tries again
                log_event(LOG, logging.INFO, "adapter.unloaded", adapter=name, url=server.url)

    def _ours(self, models: ServerModels) -> Iterator[str]:
        for name, folder in models.adapters.items():
            if name.startswith(PREFIX) and self._folders.is_ours(folder):
                yield name


def name_of(files: WeightFiles) -> str | None:
    """Return the name of an adapter at servers: a hash that reveals nothing of its tenant.

    None: it is the base model.
    """
    return None if files.adapter is None else f"{PREFIX}{files.adapter.name[:DIGITS]}"


def check_weights(adapter: Path) -> None:
    """Raises Refusal for anything but LoRA weights as safetensors: servers would read a pickle."""
    try:
        with safe_open(adapter / ADAPTER_FILES[0], framework="numpy") as tensors:
            strange = [name for name in tensors.keys() if "lora_" not in name]  # noqa: SIM118  # it is no dict
    except (SafetensorError, OSError) as error:
        log_event(LOG, logging.ERROR, "adapter.not_read", adapter=adapter.name, why=error)
        message = "The adapter's weights cannot be read; the engine's log says why."
        raise Refusal(UNSUPPORTED, message) from error
    if strange:
        message = f"The adapter has weights that are no LoRA weights: {strange[0]}."
        raise Refusal(UNSUPPORTED, message)


class RemoteModel:
    """Implements `LoadedModel`."""

    def __init__(self, engine: ServedEngine, files: WeightFiles, prompts: Prompts) -> None:
        self._engine, self._files, self._prompts = engine, files, prompts

    def answer(self, question: Question, say: Say) -> None:
        """Send the answer in parts; see `LoadedModel`."""
        say = self._prompts.with_calls(question, say)
        try:
            prompt = tuple(self._prompts.encode(question))
            chosen = self._engine.find_server(self._files)
            context_tokens = self._engine.context_of(self._files, chosen.models)
            tokens_left = context_tokens - len(prompt)
            if tokens_left <= 0:
                say(too_long(context_tokens, len(prompt)))
                return
            body = self._body(question, chosen, prompt, tokens_left)
            with chosen.server.completion(body) as chunks:
                self._tell(question, len(prompt), body["max_tokens"], chunks, say)
        except Refusal as refused:
            say(QuestionRefused(refused.code, refused.message))
        except ServerAway as error:
            log_event(LOG, logging.ERROR, "answer.failed", why=error)
            say(QuestionRefused(FAILED, AWAY))
        except ServerRefused as error:
            say(refusal_of(error))

    def close(self) -> None:
        """Free the memory."""
        self._engine.drop(self._files)

    def _body(
        self, question: Question, chosen: ModelServer, prompt: Sequence[int], tokens_left: int
    ) -> dict[str, Any]:
        sampling = question.sampling
        tenant = secrets.token_hex(16) if question.asker is None else question.asker.tenant
        body = {
            **chosen.server.model_fields(chosen.models, chosen.adapter),
            **sampling_fields(sampling),
            "prompt": prompt,
            "max_tokens": min(tokens_left, sampling.tokens_max or tokens_left),
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "cache_salt": self._engine.salt_of(tenant),
        }
        if self._prompts.ends:
            body["stop_token_ids"] = list(self._prompts.ends)
        if (constraint := self._prompts.constraint(question)) is not None:
            body |= format_fields(question, constraint)
        return body

    def _tell(
        self,
        question: Question,
        prompt_tokens: int,
        tokens_max: int,
        chunks: Iterator[Chunk],
        say: Say,
    ) -> None:
        """Send an answer. Its tokens are counted here, whatever the server says of its usage."""
        text = AnswerText(self._prompts.decode, question.sampling.stop)
        stream = AnswerStream(text, prompt_tokens, say)
        tokens = cached_tokens = 0
        finish_reason = None
        for chunk in chunks:
            claimed = chunk.cached_tokens or cached_tokens
            cached_tokens = min(prompt_tokens, max(0, claimed))
            for choice in chunk.choices:
                if choice.text and choice.token_ids is None:
                    raise ServerAway(NO_TOKENS)
                sent = choice.token_ids or []
                ids = sent[: tokens_max - tokens]
                tokens += len(ids)
                finish_reason = choice.finish_reason or finish_reason
                # without stop texts, which stay here, it is the token that ends an answer
                ended = choice.finish_reason == "stop" and len(ids) == len(sent)
                written = ids[:-1] if ended else ids
                for index, token in enumerate(written):
                    if not stream.add(
                        token, self._logprob(question, token, index, choice.logprobs)
                    ):
                        return
                if len(ids) < len(sent):  # the server did not end where it had to
                    stream.end("length", tokens, cached_tokens)
                    return
        if finish_reason not in ("stop", "length"):
            raise ServerAway(f"an answer ended with {finish_reason!r}")
        stream.end(finish_reason, tokens, cached_tokens)

    def _logprob(
        self, question: Question, token: int, index: int, logprobs: ChunkLogprobs | None
    ) -> dict[str, Any] | None:
        count = question.sampling.top_logprobs
        if count is None or logprobs is None or index >= len(logprobs.token_logprobs):
            return None
        own = logprobs.token_logprobs[index]
        if own is None:
            return None
        tops = logprobs.top_logprobs or []
        top = (tops[index] if index < len(tops) else None) or {}
        likely = sorted(top.items(), key=lambda item: -item[1])[:count]
        named = [(self._text_of(key), logprob) for key, logprob in likely]
        return token_logprob(self._prompts.decode([token]), own, named)

    def _text_of(self, key: str) -> str:
        number = key.removeprefix(ID_MARK)
        is_id = key.startswith(ID_MARK) and number.isdigit()
        return self._prompts.decode([int(number)]) if is_id else key


def sampling_fields(sampling: Sampling) -> dict[str, Any]:
    """Sampling options of both servers, with their own additional samplers switched off."""
    fields: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": max(sampling.top_p, TOP_P_MIN),
        "top_k": -1,
        "min_p": 0.0,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": 1.0,
    }
    if sampling.seed is not None:
        fields["seed"] = sampling.seed
    if sampling.top_logprobs is not None:
        fields |= {"logprobs": sampling.top_logprobs, "return_tokens_as_token_ids": True}
    return fields


def format_fields(question: Question, constraint: Constraint) -> dict[str, Any]:
    """Return the constraint of an answer in the words of both servers.

    Schemas have a name, which servers require. Raises Refusal for what neither can enforce.
    """
    form, asked = constraint.calls, question.response_format
    if form is None:
        if asked is not None and asked["type"] != "json_schema":
            return {"response_format": dict(asked)}
        schema = {"name": "answer", "schema": constraint.schema}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    if constraint.otherwise is not None:
        raise Refusal(MALFORMED, NOT_BOTH)
    if not form.begin:
        return {}  # nothing marks a call that they could wait for: `strict` holds nothing
    structure = {"begin": form.begin + form.gap, "schema": constraint.schema, "end": ""}
    tag = {"type": "structural_tag", "structures": [structure], "triggers": [form.begin]}
    return {"response_format": tag}


def refusal_of(refused: ServerRefused) -> QuestionRefused:
    """Return the refusal for the client. The server's message may quote the question, so it is not
    logged.
    """
    if refused.status in (400, 422):
        return QuestionRefused(MALFORMED, refused.message)
    if refused.status in (429, 503):
        return QuestionRefused(BUSY, "The server that computes answers is busy. Try again.")
    log_event(LOG, logging.ERROR, "answer.refused", why=why_of(ServerRefused(refused.status, "")))
    return QuestionRefused(FAILED, "The server that computes answers failed. Try again.")


def why_of(error: ServerAway | ServerRefused) -> str:
    """For the log: what went wrong, and what an operator can do."""
    if not isinstance(error, ServerRefused):
        return str(error)
    if error.status in (401, 403):
        return "the server refuses the key; set TUNERY_ENGINE_SERVER_KEY"
    return f"HTTP {error.status}: {error.message}"
