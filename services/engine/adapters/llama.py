"""llama.cpp through the package xllamacpp: one context for each model.

llama.cpp takes adapters only when a model is loaded, so every version is loaded for itself. The
file of the base model is mapped into memory, and versions of one base share its pages.
"""

import os
import secrets
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Final

import xllamacpp

from services.engine.adapters.prompts import Prompts, too_long
from services.engine.adapters.weights import delete_unfinished
from services.engine.ports import Refusal, Say, WeightFiles
from tunery.platform.local_socket import short_name
from tunery.work.engine import (
    FAILED,
    MALFORMED,
    UNSUPPORTED,
    AnswerEnded,
    Question,
    QuestionRefused,
    Reply,
    Sampling,
    Spent,
    TextAdded,
)

ERRORS_ONLY: Final = 1
FOLDER: Final = "tunery-engine-"  # then the number of the process that listens in it
PROBE: Final = "x"
PROBE_ANSWER: Final = "~"
COMPILED_MAX: Final = 256
BAD_SCHEMA: Final = (
    "This JSON schema cannot be held: it has types that do not exist, references to nothing or to "
    "themselves alone, or it is too large."
)
SEEDS: Final = 2**32 - 1  # the last value means a random seed
EMBEDDED_TOKENS_MAX: Final = 2_048  # of one text, which is read in one batch
POOLING: Final = "1_Pooling/config.json"  # of bases for embeddings, as sentence-transformers has it


class LlamaEngine:
    """Implements `ModelLoader`."""

    def __init__(self, *, answers_max: int, context_tokens: int, threads: int) -> None:
        self._answers_max, self._context_tokens = answers_max, context_tokens
        self._threads = threads
        delete_unfinished(Path(tempfile.gettempdir()), FOLDER)

    def load(self, files: WeightFiles) -> "LlamaModel":
        """Raises Refusal for files that llama.cpp cannot read."""
        prompts = Prompts(files)
        context = min(self._context_tokens, files.context_length)
        folder = tempfile.TemporaryDirectory(prefix=f"{FOLDER}{os.getpid()}-")
        params = self._params(files)
        params.n_parallel, params.n_ctx = self._answers_max, context * self._answers_max
        try:
            server = start(params, Path(folder.name) / "llama.sock")
        except Refusal:
            folder.cleanup()
            raise
        return LlamaModel(server, folder, context, prompts, partial(self._embedder, files, context))

    def _params(self, files: WeightFiles) -> Any:
        params = xllamacpp.CommonParams()
        params.api_keys = [secrets.token_hex(16)]
        params.model.path = str(files.base)
        if files.adapter is not None:
            params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(files.adapter), 1.0)]
        params.cpuparams.n_threads = self._threads
        params.warmup = params.fit_params = params.prefill_assistant = False
        none = xllamacpp.common_reasoning_format.COMMON_REASONING_FORMAT_NONE
        params.reasoning_format = none
        params.verbosity = ERRORS_ONLY
        return params

    def _embedder(self, files: WeightFiles, context_tokens: int, folder: Path) -> Any:
        """A server of the same weights that writes no text: llama.cpp's do one or the other."""
        params, tokens = self._params(files), min(context_tokens, EMBEDDED_TOKENS_MAX)
        params.embedding, params.n_parallel = True, 1
        params.n_ctx = params.n_batch = params.n_ubatch = tokens
        if not (files.folder / POOLING).exists():  # else the converted file says how
            params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
        return start(params, folder / "embed.sock")


def start(params: Any, socket: Path) -> Any:
    """Start a server of llama.cpp. Raises Refusal.

    It always listens: here at an address that no other process can reach.
    """
    try:
        with short_name(socket) as name:
            params.hostnames = [name]
            return xllamacpp.Server(params)
    except Exception as error:  # the package has no exceptions of its own
        message = "llama.cpp cannot load this model; the engine's log says why."
        raise Refusal(UNSUPPORTED, message) from error


class LlamaModel:
    """Implements `LoadedModel`."""

    def __init__(
        self,
        server: Any,
        folder: "tempfile.TemporaryDirectory[str]",
        context_tokens: int,
        prompts: Prompts,
        embedder_in: Callable[[Path], Any],
    ) -> None:
        self._server, self._folder, self._context_tokens = server, folder, context_tokens
        self.prompts = prompts
        self._compiled = set[str]()  # grammars that llama.cpp understands
        self._embedder_in, self._starting = embedder_in, Lock()
        self._embedder: Any = None

    def answer(self, question: Question, say: Say) -> None:
        """Send the answer in parts; see `LoadedModel`."""
        if question.embed:
            say(self._embed(question))
            return
        finish_reason = "stop"
        say = self.prompts.with_calls(question, say)

        def take(chunk: Mapping[str, Any]) -> bool:
            """Returns whether to stop, as llama.cpp wants it."""
            nonlocal finish_reason
            if "error" in chunk:
                say(self._refusal(chunk["error"]))
                return True
            for choice in chunk["choices"]:
                finish_reason = choice["finish_reason"] or finish_reason
                if part := _text_of(chunk, choice, question.sampling.top_logprobs):
                    return not say(part)
            if usage := chunk.get("usage"):
                cached = usage["prompt_tokens_details"]["cached_tokens"]
                tokens = (usage["prompt_tokens"], usage["completion_tokens"], cached)
                return not say(AnswerEnded(finish_reason, *tokens))
            return False

        # what one tenant asked must not show in how fast another's question is read
        cached = bool(question.model.adapter)
        body = {
            **sampling_fields(question.sampling),
            "cache_prompt": cached,
            "stream": True,
            "timings_per_token": True,
            "stream_options": {"include_usage": True},
        }
        try:
            if ends := self.prompts.end_texts():  # llama.cpp knows those of the base model alone
                body["preserved_tokens"] = ends
                body["stop"] = [*body.get("stop", ()), *ends]
            if constraint := self.prompts.constraint(question):
                body["grammar"] = constraint.grammar()
                self._check(body["grammar"])
            body["prompt"] = list(self.prompts.encode(question))
            self._server.handle_completions(body, take)
        except Refusal as refused:
            say(QuestionRefused(refused.code, refused.message))

    def _embed(self, question: Question) -> Reply:
        """The embedding of a text. The server for it starts with the first one."""
        ids = list(self.prompts.encode_text(question.prompt or ""))
        tokens_max = min(self._context_tokens, EMBEDDED_TOKENS_MAX)
        if len(ids) > tokens_max:
            return too_long(tokens_max, len(ids))
        try:
            with self._starting:
                self._embedder = self._embedder or self._embedder_in(Path(self._folder.name))
        except Refusal as refused:
            return QuestionRefused(refused.code, refused.message)
        reply = self._embedder.handle_embeddings({"input": ids})
        if "error" in reply:
            return self._refusal(reply["error"])
        return AnswerEnded("stop", len(ids), 0, embedding=tuple(reply["data"][0]["embedding"]))

    def _check(self, grammar: str) -> None:
        """Raises Refusal for a grammar with a schema that cannot be compiled.

        llama.cpp only logs that, and then writes any text. So the grammar is asked behind a
        character that no model writes first of its own accord.
        """
        if grammar in self._compiled:
            return
        head, start = grammar.split("start: ", 1)
        texts: list[str] = []

        def take(chunk: Mapping[str, Any]) -> bool:
            texts.extend(choice["text"] for choice in chunk.get("choices", ()))
            return False

        body = {"prompt": PROBE, "max_tokens": 1, "temperature": 0, "stream": True}
        probing = f'{head}start: "{PROBE_ANSWER}" begun\nbegun: {start}'
        self._server.handle_completions({**body, "grammar": probing}, take)
        if not "".join(texts).startswith(PROBE_ANSWER):
            raise Refusal(MALFORMED, BAD_SCHEMA)
        if len(self._compiled) >= COMPILED_MAX:
            self._compiled.clear()
        self._compiled.add(grammar)

    def close(self) -> None:
        """Free the memory."""
        self._server = self._embedder = None
        self._folder.cleanup()

    def _refusal(self, error: Mapping[str, Any]) -> QuestionRefused:
        if error.get("type") == "exceed_context_size_error":
            return too_long(self._context_tokens, error["n_prompt_tokens"])
        if error.get("code") == 400:
            return QuestionRefused(MALFORMED, str(error["message"]))
        return QuestionRefused(FAILED, "The engine could not answer. Its log says why.")


def _text_of(
    chunk: Mapping[str, Any], choice: Mapping[str, Any], top_logprobs: int | None
) -> TextAdded | None:
    """The text of a chunk, with the probabilities that were asked for."""
    text = choice["text"]
    tokens = (choice.get("logprobs") or {}).get("content") or ()
    logprobs = tuple(
        {**token, "top_logprobs": token["top_logprobs"][:top_logprobs]} for token in tokens
    )
    return TextAdded(text, logprobs, _spent(chunk)) if text or logprobs else None


def _spent(chunk: Mapping[str, Any]) -> Spent:
    """Tokens until a chunk: `prompt_n` are those that were not cached."""
    timings = chunk.get("timings")
    if timings is None:
        return Spent()
    cached, read = timings["cache_n"], timings["prompt_n"]
    return Spent(cached + read, cached, timings["predicted_n"])


def sampling_fields(sampling: Sampling) -> dict[str, Any]:
    """Sampling options of llama.cpp, with its own additional samplers switched off."""
    fields: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": 0,
        "min_p": 0.0,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repeat_penalty": 1.0,
        "max_tokens": -1 if sampling.tokens_max is None else sampling.tokens_max,
    }
    if sampling.seed is not None:
        fields["seed"] = sampling.seed % SEEDS
    if sampling.top_logprobs is not None:
        fields["logprobs"] = max(1, sampling.top_logprobs)  # 0 would return none at all
    if sampling.stop:
        fields["stop"] = list(sampling.stop)
    return fields
