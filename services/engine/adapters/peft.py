"""PEFT in a process next to the engine, as the exact reference: fp32, and every answer for itself.

The process (`tunery.ml.answers`) writes tokens, and has no secrets in its environment. It starts
with the first model and ends with the last one. When it is killed the next question starts another.
"""

import contextlib
import itertools
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Final

from services.engine.adapters.answer_text import AnswerStream, AnswerText, token_logprob
from services.engine.adapters.prompts import Prompts, too_long
from services.engine.adapters.weights import PASSED_ON
from services.engine.ports import Refusal, Say, WeightFiles
from tunery.runtime.telemetry.logs import log_event
from tunery.work.answers import (
    AbandonAnswer,
    DropModel,
    LoadModel,
    ModelReady,
    ModelUnloadable,
    ProcessOrder,
    ProcessReply,
    TokensEnded,
    TokenWritten,
    WriteAnswer,
    decode_process_reply,
    encode_record,
)
from tunery.work.engine import MALFORMED, UNSUPPORTED, Question, QuestionRefused

LOG: Final = logging.getLogger("tunery.engine")
STOP_S_MAX: Final = 10
TEXT_ALONE: Final = (
    "This engine (peft) writes text alone: leave out response_format, strict and tool_choice."
)


class ProcessEnded(Exception):
    """The process is gone: it was killed, or failed; its own words are in the engine's log."""


class AnswerProcess:
    """A running process. models: names of those that it has loaded."""

    def __init__(self, threads: int) -> None:
        """Raises OSError."""
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tunery.ml.answers", "--threads", str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise OSError("the process has no pipes")
        self._orders, self._lines = self._process.stdin, self._process.stdout
        self.models: set[str] = set()
        self.ended = False
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._replies: dict[int, queue.SimpleQueue[ProcessReply | None]] = {}
        self._reader = threading.Thread(target=self._read, name="answers", daemon=True)
        self._reader.start()

    @contextlib.contextmanager
    def numbered(self) -> Iterator[tuple[int, "queue.SimpleQueue[ProcessReply | None]"]]:
        """A new number, and the replies to its orders; None comes when the process has ended."""
        replies: queue.SimpleQueue[ProcessReply | None] = queue.SimpleQueue()
        with self._lock:
            number = next(self._numbers)
            self._replies[number] = replies
            if self.ended:
                replies.put(None)
        try:
            yield number, replies
        finally:
            with self._lock:
                del self._replies[number]

    def send(self, order: ProcessOrder) -> None:
        """Raises ProcessEnded."""
        try:
            with self._lock:
                self._orders.write(encode_record(order))
                self._orders.flush()
        except (OSError, ValueError) as error:
            raise ProcessEnded from error

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self) -> None:
        """Wait until the process has ended and all its output was read."""
        self._process.wait()
        self._reader.join(STOP_S_MAX)

    def stop(self) -> None:
        """End the process and wait for it."""
        with contextlib.suppress(OSError):
            self._orders.close()
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self.wait()

    def _read(self) -> None:
        with self._lines as lines:
            for line in lines:
                reply = decode_process_reply(line)
                with self._lock:
                    if replies := self._replies.get(reply.number):
                        replies.put(reply)
        with contextlib.suppress(OSError):
            self._orders.close()
        with self._lock:
            self.ended = True
            for replies in self._replies.values():
                replies.put(None)


class PeftEngine:
    """Implements `ModelLoader`."""

    def __init__(self, *, context_tokens: int, threads: int) -> None:
        self._context_tokens, self._threads = context_tokens, threads
        self._lock = threading.Lock()
        self._process: AnswerProcess | None = None

    def load(self, files: WeightFiles) -> "ProcessModel":
        """Raises Refusal for files that transformers or PEFT cannot read; OSError."""
        prompts = Prompts(files)
        self.process_with(files)
        return ProcessModel(self, files, prompts, min(self._context_tokens, files.context_length))

    def process_with(self, files: WeightFiles) -> AnswerProcess:
        """A process that has the model in memory. Raises Refusal; ProcessEnded; OSError."""
        name = name_of(files)
        with self._lock:
            if self._process is None or self._process.ended:
                self._process = AnswerProcess(self._threads)
            if name not in self._process.models:
                load_into(self._process, name, files)
            return self._process

    def drop(self, files: WeightFiles) -> None:
        """Free the model's memory."""
        name = name_of(files)
        with self._lock:
            if self._process is None or name not in self._process.models:
                return
            self._process.models.discard(name)
            if not self._process.models:
                self._process.stop()
                self._process = None
                return
            with contextlib.suppress(ProcessEnded), self._process.numbered() as (number, _):
                self._process.send(DropModel(number, name))


def name_of(files: WeightFiles) -> str:
    """Return the name of a model in the process: PEFT allows no dots in names of adapters."""
    folder = files.base if files.adapter is None else files.adapter
    return folder.name.replace(".", "-")


def load_into(process: AnswerProcess, name: str, files: WeightFiles) -> None:
    """Load a model. Raises Refusal when it cannot be loaded; ProcessEnded."""
    adapter = None if files.adapter is None else str(files.adapter)
    with process.numbered() as (number, replies):
        process.send(LoadModel(number, name, str(files.base), adapter))
        match replies.get():
            case ModelReady():
                process.models.add(name)
            case ModelUnloadable(why=why):
                log_event(LOG, logging.ERROR, "model.not_loaded", why=why)
                message = "PEFT cannot load this model; the engine's log says why."
                raise Refusal(UNSUPPORTED, message)
            case _:
                raise ProcessEnded


class ProcessModel:
    """Implements `LoadedModel`."""

    def __init__(
        self, engine: PeftEngine, files: WeightFiles, prompts: Prompts, context_tokens: int
    ) -> None:
        self._engine, self._files = engine, files
        self._prompts, self._context_tokens = prompts, context_tokens

    def answer(self, question: Question, say: Say) -> None:
        """Send the answer in parts; see `LoadedModel`. Raises ProcessEnded; OSError."""
        if self._prompts.constraint(question) is not None:
            say(QuestionRefused(MALFORMED, TEXT_ALONE))
            return
        say = self._prompts.with_calls(question, say)
        try:
            prompt = tuple(self._prompts.encode(question))
            process = self._engine.process_with(self._files)
        except Refusal as refused:
            say(QuestionRefused(refused.code, refused.message))
            return
        tokens_left = self._context_tokens - len(prompt)
        if tokens_left <= 0:
            say(too_long(self._context_tokens, len(prompt)))
            return
        tokens_max = min(tokens_left, question.sampling.tokens_max or tokens_left)
        with process.numbered() as (number, replies):
            name = name_of(self._files)
            sampling, ends = question.sampling, self._prompts.ends
            process.send(WriteAnswer(number, name, prompt, sampling, tokens_max, ends))
            if not self._tell(question, len(prompt), replies, say):
                process.send(AbandonAnswer(number))

    def _tell(
        self,
        question: Question,
        prompt_tokens: int,
        replies: "queue.SimpleQueue[ProcessReply | None]",
        say: Say,
    ) -> bool:
        """Stream the process's tokens; return True if it wrote to the end. Raises ProcessEnded."""
        stream = AnswerStream(
            AnswerText(self._prompts.decode, question.sampling.stop), prompt_tokens, say
        )
        while True:
            match replies.get():
                case TokenWritten() as token:
                    if not stream.add(token.token, self._logprob(token)):
                        return False
                case TokensEnded() as ended:
                    stream.end(ended.finish_reason, ended.tokens)
                    return True
                case _:
                    raise ProcessEnded

    def _logprob(self, token: TokenWritten) -> dict[str, object] | None:
        if token.logprob is None:
            return None
        text_of = self._prompts.decode
        likely = [(text_of([number]), logprob) for number, logprob in token.likely]
        return token_logprob(text_of([token.token]), token.logprob, likely)

    def close(self) -> None:
        """Free the memory."""
        self._engine.drop(self._files)
