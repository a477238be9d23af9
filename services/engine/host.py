"""Takes questions over a local socket that only the owner of the data directory can open."""

import asyncio
import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from msgspec import MsgspecError

from services.engine.loaded_models import LoadedModels
from services.engine.meter import AnswerMeter
from services.engine.ports import LoadedModel, Refusal
from tunery.runtime.blobs.abstract import BlobError
from tunery.runtime.local_socket import listen_at
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import wait_forever
from tunery.work.engine import (
    BUSY,
    FAILED,
    LINE_BYTES_MAX,
    MALFORMED,
    Question,
    QuestionRefused,
    Reply,
    decode_question,
    encode_line,
)

LOG: Final = logging.getLogger("tunery.engine")
QUESTIONS_MAX: Final = 64  # answered or waiting; each has a thread


class EngineHost:
    """Implements `Host`. Questions and answers are never logged."""

    name = "engine"

    def __init__(self, models: LoadedModels, socket: Path, meter: AnswerMeter) -> None:
        self._models, self._socket, self._meter = models, socket, meter
        self._threads = ThreadPoolExecutor(QUESTIONS_MAX, "answer")
        self._asked = 0
        self._ready = asyncio.Event()

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        """Serve until cancelled. Raises OSError."""
        server = await asyncio.start_unix_server(
            self._serve, sock=listen_at(self._socket), limit=LINE_BYTES_MAX
        )
        self._ready.set()
        try:
            await wait_forever()
        finally:
            server.close()
            await self._models.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._reply(reader, writer)
        except (ConnectionError, ValueError, asyncio.IncompleteReadError):
            pass  # the client is gone, or sent no line: nobody is left to be told
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _reply(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readuntil(b"\n")
        if self._asked >= QUESTIONS_MAX:
            message = "The engine answers as many questions as it can. Try again shortly."
            writer.write(encode_line(QuestionRefused(BUSY, message)))
            return
        self._asked += 1
        gone = asyncio.ensure_future(reader.read(1))  # a client says nothing more: it left
        try:
            question = decode_question(line)
            async with self._models.borrow(question.model) as model:
                await self._answer(model, question, writer, gone)
        except Refusal as refusal:
            writer.write(encode_line(QuestionRefused(refusal.code, refusal.message)))
        except MsgspecError as error:
            writer.write(encode_line(QuestionRefused(MALFORMED, str(error))))
        except (BlobError, OSError) as error:
            log_event(LOG, logging.ERROR, "model.not_loaded", why=error)
            message = "The model's files cannot be read. Try again; the engine's log says why."
            writer.write(encode_line(QuestionRefused(FAILED, message)))
        finally:
            self._asked -= 1
            gone.cancel()

    async def _answer(
        self,
        model: LoadedModel,
        question: Question,
        writer: asyncio.StreamWriter,
        gone: "asyncio.Future[bytes]",
    ) -> None:
        """Write the parts of the answer as they come; ends when the client has left, too."""
        loop = asyncio.get_running_loop()
        said: asyncio.Queue[Reply | None] = asyncio.Queue()
        tally = None if question.asker is None else self._meter.begin(question.asker)

        def say(reply: Reply) -> bool:
            if tally is not None and not isinstance(reply, QuestionRefused):
                tally.note(reply.spent)  # first of all: what was told is counted, whatever comes
            loop.call_soon_threadsafe(said.put_nowait, reply)
            return not gone.done()

        answering = loop.run_in_executor(self._threads, model.answer, question, say)
        answering.add_done_callback(lambda _: said.put_nowait(None))
        try:
            while (reply := await said.get()) is not None:
                if not gone.done():
                    writer.write(encode_line(reply))
                    await writer.drain()
        finally:
            gone.cancel()  # the thread must not go on with a model that is given back
            await asyncio.wait((answering,))
            if tally is not None:
                tally.end()
        if (error := answering.exception()) is not None:
            log_event(LOG, logging.ERROR, "answer.failed", why=error)
            writer.write(encode_line(QuestionRefused(FAILED, "The engine failed. Try again.")))
