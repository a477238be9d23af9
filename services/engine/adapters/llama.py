"""llama.cpp through the package xllamacpp: one context for each model.

llama.cpp takes adapters only when a model is loaded, so every version is loaded for itself. The
file of the base model is mapped into memory, and versions of one base share its pages.
"""

import os
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path
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


class LlamaEngine:
    """Implements `ModelLoader`."""

    def __init__(self, *, answers_max: int, context_tokens: int, threads: int) -> None:
        self._answers_max, self._context_tokens = answers_max, context_tokens
        self._threads = threads
        delete_unfinished(Path(tempfile.gettempdir()), FOLDER)

    def load(self, files: WeightFiles) -> "LlamaModel":
        """Raises Refusal for files that llama.cpp cannot read."""
        prompts = Prompts(files.folder)
        context = min(self._context_tokens, files.context_length)
        # The server of xllamacpp always listens. Here it does so where nobody else can reach it.
        folder = tempfile.TemporaryDirectory(prefix=f"{FOLDER}{os.getpid()}-")
        params = xllamacpp.CommonParams()
        params.api_keys = [secrets.token_hex(16)]
        params.model.path = str(files.base)
        if files.adapter is not None:
            params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(files.adapter), 1.0)]
        params.n_parallel, params.n_ctx = self._answers_max, context * self._answers_max
        params.cpuparams.n_threads = self._threads
        params.warmup = params.fit_params = params.prefill_assistant = False
        none = xllamacpp.common_reasoning_format.COMMON_REASONING_FORMAT_NONE
        params.reasoning_format = none
        params.verbosity = ERRORS_ONLY
        try:
            with short_name(Path(folder.name) / "llama.sock") as socket:
                params.hostnames = [socket]
                server = xllamacpp.Server(params)
        except Exception as error:  # the package has no exceptions of its own
            folder.cleanup()
            message = "llama.cpp cannot load this model; the engine's log says why."
            raise Refusal(UNSUPPORTED, message) from error
        return LlamaModel(server, folder, context, prompts)


class LlamaModel:
    """Implements `LoadedModel`."""

    def __init__(
        self,
        server: Any,
        folder: "tempfile.TemporaryDirectory[str]",
        context_tokens: int,
        prompts: Prompts,
    ) -> None:
        self._server, self._folder, self._context_tokens = server, folder, context_tokens
        self.prompts = prompts
        self._compiled = set[str]()  # grammars that llama.cpp understands

    def answer(self, question: Question, say: Say) -> None:
        """Say the answer in parts; see `LoadedModel`."""
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
            if constraint := self.prompts.constraint(question):
                body["grammar"] = constraint.grammar()
                self._check(body["grammar"])
            body["prompt"] = list(self.prompts.encode(question))
            self._server.handle_completions(body, take)
        except Refusal as refused:
            say(QuestionRefused(refused.code, refused.message))

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
        self._server = None
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
    """How llama.cpp says it, with its own ways of choosing tokens switched off."""
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
