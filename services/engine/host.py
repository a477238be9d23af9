"""Takes questions over a local socket that only the owner of the data directory can open."""

import asyncio
import contextlib
import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from msgspec import MsgspecError

from services.engine.loaded_models import LoadedModels
from services.engine.meter import AnswerMeter
from services.engine.ports import LoadedModel, Refusal
from tunery.platform.blobs.frames import PathKey
from tunery.platform.blobs.path_keys import HandedPathKeys
from tunery.platform.local_socket import listen_at
from tunery.runtime.blobs.abstract import BlobError
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import wait_forever
from tunery.work.engine import (
    BUSY,
    FAILED,
    LINE_BYTES_MAX,
    MALFORMED,
    TENANT_BUSY,
    Question,
    QuestionRefused,
    Reply,
    TextAdded,
    decode_question,
    encode_line,
)

LOG: Final = logging.getLogger("tunery.engine")
QUESTIONS_MAX: Final = 64  # answered or waiting; each has a thread


class EngineHost:
    """Implements `Host`. Questions and answers are never logged."""

    name = "engine"

    def __init__(
        self,
        models: LoadedModels,
        socket: Path,
        meter: AnswerMeter,
        tenant_questions_max: int = QUESTIONS_MAX,
        handed: HandedPathKeys | None = None,
    ) -> None:
        """handed: gets the keys that come with questions."""
        self._handed = handed or HandedPathKeys()
        self._models, self._socket, self._meter = models, socket, meter
        self._tenant_questions_max = tenant_questions_max
        self._threads = ThreadPoolExecutor(QUESTIONS_MAX, "answer")
        self._asked = Counter[str]()  # tenant → its questions here; "" has none
        self._ready = asyncio.Event()
        self._ended = asyncio.Event()  # an answer has, since it was cleared
        self._server: asyncio.Server | None = None

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        """Serve until cancelled. Raises OSError."""
        self._server = server = await asyncio.start_unix_server(
            self._serve, sock=listen_at(self._socket), limit=LINE_BYTES_MAX
        )
        self._ready.set()
        try:
            await wait_forever()
        finally:
            server.close()
            await self._models.close()

    async def drain(self) -> None:
        """Take no more questions, and wait until all answers are written."""
        if self._server is not None:
            self._server.close()
        while self._asked.total():
            self._ended.clear()
            await self._ended.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._reply(reader, writer)
        except (ConnectionError, ValueError, asyncio.IncompleteReadError):
            pass  # the client is gone, or sent no line: there is no client to answer
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _reply(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            question = decode_question(await reader.readuntil(b"\n"))
        except MsgspecError as error:
            writer.write(encode_line(QuestionRefused(MALFORMED, str(error))))
            return
        tenant = "" if question.asker is None else question.asker.tenant
        if refused := self._refusal(tenant):
            writer.write(encode_line(refused))
            return
        for key in question.keys:
            self._handed.add(key.blob, (PathKey(key.version, key.secret),))
        self._asked[tenant] += 1
        gone = asyncio.ensure_future(reader.read(1))  # a client says nothing more: it left
        try:
            async with self._models.borrow(question.model, tenant) as model:
                if not gone.done():
                    await self._answer(model, question, writer, gone)
        except Refusal as refusal:
            writer.write(encode_line(QuestionRefused(refusal.code, refusal.message)))
        except (BlobError, OSError) as error:
            log_event(LOG, logging.ERROR, "model.not_loaded", why=error)
            message = "The model's files cannot be read. Try again; the engine's log says why."
            writer.write(encode_line(QuestionRefused(FAILED, message)))
        finally:
            self._asked[tenant] -= 1
            self._ended.set()
            gone.cancel()

    def _refusal(self, tenant: str) -> QuestionRefused | None:
        """Why a question is not taken now: no tenant may fill the engine alone.

        A replica has one tenant, and is full before that has too many.
        """
        if self._asked.total() >= QUESTIONS_MAX:
            message = "The engine answers as many questions as it can. Try again shortly."
            return QuestionRefused(BUSY, message)
        if self._asked[tenant] >= self._tenant_questions_max and tenant:
            message = (
                f"Rate limit reached: {self._tenant_questions_max} of your answers are being "
                "written or wait. Try again when one has ended."
            )
            return QuestionRefused(TENANT_BUSY, message)
        return None

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
                tally.note(reply.spent)  # first of all: sent tokens count, even if the rest fails
            if not isinstance(reply, TextAdded) or reply.text or reply.logprobs:
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
            gone.cancel()  # the thread must not continue with a model that is given back
            await asyncio.wait((answering,))
            if tally is not None:
                tally.end()
        if (error := answering.exception()) is not None:
            log_event(LOG, logging.ERROR, "answer.failed", why=error)
            writer.write(encode_line(QuestionRefused(FAILED, "The engine failed. Try again.")))
