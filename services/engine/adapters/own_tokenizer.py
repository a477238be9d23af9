"""A version's own tokenizer, whose chat template a tenant wrote: it runs in a process of its own.

    python -m services.engine.adapters.own_tokenizer FOLDER

A hostile template takes seconds and all the memory that it can get. Beside the engine it has a
bounded share, and other answers go on. The process reads a call in each line of its standard input
and writes a reply to each; it ends with its input. One that takes too long is replaced.
"""

import json
import os
import resource
import selectors
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, Final

from tunery.data.dialects.parsing import Object
from tunery.data.tokens.chat_template import TemplateError
from tunery.data.tokens.tokenizer import BaseUnusable, Tokenizer

MEMORY_BYTES_MAX: Final = 1 << 30  # of the process; a tokenizer of 250,000 tokens takes a third
REPLY_S_MAX: Final = 10.0
START_S_MAX: Final = 60.0  # on a busy machine
NICENESS: Final = 10
READ_BYTES: Final = 1 << 16
PASSED_ON: Final = ("PATH", "HOME", "LANG")


class OwnTokenizer:
    """A tokenizer with the methods of `Tokenizer` that questions need.

    stop_ids: ids of the tokens that end an answer
    """

    def __init__(self, folder: Path) -> None:
        """Raises BaseUnusable."""
        self._folder = folder
        self._plain = Tokenizer.load(folder, has_template=False)
        self.stop_ids = self._plain.stop_ids
        self._lock = Lock()
        self._process = self._start()

    def encode_question(self, messages: list[Object], tools: list[Any] | None) -> list[int]:
        """Return the tokens of a question, as `Tokenizer` does. Raises TemplateError."""
        ids: list[int] = self._call("encode_question", [messages, tools], {})
        return ids

    def write_chat(
        self,
        messages: list[Object],
        tools: list[Any] | None,
        *,
        add_generation_prompt: bool = False,
    ) -> str:
        """Return the text of a conversation, as `Tokenizer` does. Raises TemplateError."""
        options = {"add_generation_prompt": add_generation_prompt}
        text: str = self._call("write_chat", [messages, tools], options)
        return text

    def encode_text(self, text: str) -> list[int]:
        """The tokens of a text that is the whole prompt; special tokens in it are special."""
        return self._plain.encode_text(text)

    def decode(self, ids: Sequence[int], *, special: bool = True) -> str:
        """The text of token ids, with special tokens or without."""
        return self._plain.decode(ids, special=special)

    def _call(self, method: str, arguments: list[Any], options: dict[str, Any]) -> Any:
        line = json.dumps([method, arguments, options]).encode() + b"\n"
        with self._lock:
            try:
                if self._process.poll() is not None:
                    self._finalizer()
                    self._process = self._start()
                _write(self._process, line)
                reply = _read_reply(self._process, REPLY_S_MAX)
            except (OSError, BaseUnusable) as error:
                raise TemplateError(f"it cannot be run: {error}") from error
        if "error" in reply:
            raise TemplateError(reply["error"])
        return reply["value"]

    def _start(self) -> "subprocess.Popen[bytes]":
        """Raises BaseUnusable; OSError."""
        process = subprocess.Popen(
            [sys.executable, "-m", "services.engine.adapters.own_tokenizer", str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # it might quote a question
            env={name: os.environ[name] for name in PASSED_ON if name in os.environ},
        )
        self._finalizer = weakref.finalize(self, _end, process)
        reply = _read_reply(process, START_S_MAX)
        if "error" in reply:
            raise BaseUnusable(reply["error"])
        return process


def _write(process: "subprocess.Popen[bytes]", line: bytes) -> None:
    if process.stdin is not None:
        process.stdin.write(line)
        process.stdin.flush()


def _read_reply(process: "subprocess.Popen[bytes]", seconds_max: float) -> dict[str, Any]:
    """The next line of a process, which is ended where it takes too long."""
    read, deadline = bytearray(), time.monotonic() + seconds_max
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout or -1, selectors.EVENT_READ)
        while not read.endswith(b"\n"):
            if not selector.select(max(0.0, deadline - time.monotonic())):
                _end(process)
                return {"error": f"it took longer than {seconds_max:.0f} s"}
            part = b"" if process.stdout is None else os.read(process.stdout.fileno(), READ_BYTES)
            if not part:
                _end(process)
                return {"error": "it took more memory than it may have"}
            read += part
    reply: dict[str, Any] = json.loads(read)
    return reply


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None and not pipe.closed:
            pipe.close()


def main(folder: Path) -> None:
    """Write questions with the tokenizer in a folder, until standard input ends."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    with suppress(OSError):  # a replica's sandbox may not allow it
        os.nice(NICENESS)
    try:
        tokenizer = Tokenizer.load(folder)
    except BaseUnusable as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return
    print(json.dumps({"value": None}), flush=True)
    for line in sys.stdin.buffer:
        method, arguments, options = json.loads(line)
        try:
            reply = {"value": getattr(tokenizer, method)(*arguments, **options)}
        except TemplateError as error:
            reply = {"error": str(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
