"""Takes questions over a local socket that only the owner of the data directory can open."""

import asyncio
import contextlib
import logging
import math
from collections import Counter, deque
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import MsgspecError

from schemas.units import Ms
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
    AnswerEnded,
    AnswerWaits,
    EngineModel,
    Question,
    QuestionRefused,
    Reply,
    Spent,
    TextAdded,
    decode_question,
    encode_line,
)

LOG: Final = logging.getLogger("tunery.engine")
THREADS_MAX: Final = 64  # of answers that are being written
WAITING_BYTES_MAX: Final = 256 << 20  # of all questions that are answered or wait
SIGN_MS: Final[Ms] = 5_000  # between two signs that a question still waits
PACE_ANSWERS: Final = 32  # whose ends say how fast answers come
RETRY_S_MIN: Final = 2
RETRY_S_MAX: Final = 120


class QuestionLimits(NamedTuple):
    """Limits on questions: how many are answered or wait, and for how long."""

    all_max: int = 1_024
    tenant_max: int = 512  # of one tenant
    wait_ms_max: Ms = 300_000
    answer_ms_max: Ms = 600_000  # then an answer ends as one that is too long


DEFAULT_LIMITS: Final = QuestionLimits()


class EngineHost:
    """Implements `Host`. Questions and answers are never logged."""

    name = "engine"

    def __init__(
        self,
        models: LoadedModels,
        socket: Path,
        meter: AnswerMeter,
        limits: QuestionLimits = DEFAULT_LIMITS,
        handed: HandedPathKeys | None = None,
    ) -> None:
        """handed: gets the keys that come with questions."""
        self._handed = handed or HandedPathKeys()
        self._models, self._socket, self._meter = models, socket, meter
        self._limits: Final = limits
        self._threads = ThreadPoolExecutor(THREADS_MAX, "answer")
        self._asked = Counter[str]()  # tenant → its questions here; "" has none
        # tenant and model → its questions that wait, the first one first
        self._waiting: dict[tuple[str, EngineModel], list[object]] = {}
        self._bytes = 0  # of all of them
        self._ends = deque[float](maxlen=PACE_ANSWERS)  # when the last answers ended
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
            line = await reader.readuntil(b"\n")
            question = decode_question(line)
        except MsgspecError as error:
            writer.write(encode_line(QuestionRefused(MALFORMED, str(error))))
            return
        tenant = "" if question.asker is None else question.asker.tenant
        if refused := self._refusal(tenant, len(line)):
            writer.write(encode_line(refused))
            return
        for key in question.keys:
            self._handed.add(key.blob, (PathKey(key.version, key.secret),))
        self._asked[tenant] += 1
        self._bytes += len(line)
        gone = asyncio.ensure_future(reader.read(1))  # a client says nothing more: it left
        try:
            async with AsyncExitStack() as stack:
                borrowing = stack.enter_async_context(
                    self._models.borrow(question.model, tenant, low=question.in_batch)
                )
                model = await self._in_turn(borrowing, question, writer, gone)
                if model is not None:
                    await self._answer(model, question, writer, gone)
                    self._ends.append(asyncio.get_running_loop().time())
        except Refusal as refusal:
            writer.write(encode_line(QuestionRefused(refusal.code, refusal.message)))
        except (BlobError, OSError) as error:
            log_event(LOG, logging.ERROR, "model.not_loaded", why=error)
            message = "The model's files cannot be read. Try again; the engine's log says why."
            writer.write(encode_line(QuestionRefused(FAILED, message)))
        finally:
            self._asked[tenant] -= 1
            self._bytes -= len(line)
            self._ended.set()
            gone.cancel()

    async def _in_turn(
        self,
        borrowing: Awaitable[LoadedModel],
        question: Question,
        writer: asyncio.StreamWriter,
        gone: "asyncio.Future[bytes]",
    ) -> LoadedModel | None:
        """Wait for the model and a place at it, with a sign of life now and then.

        None: the client has left. Raises Refusal after `wait_ms_max`, and what loading raises.
        """
        loop, wait_s = asyncio.get_running_loop(), self._limits.wait_ms_max / 1_000
        turn, ends_s = asyncio.ensure_future(borrowing), loop.time() + wait_s
        of = "" if question.asker is None else question.asker.tenant, question.model
        queue = self._waiting.setdefault(of, [])
        queue.append(turn)
        try:
            while (left_s := ends_s - loop.time()) > 0:
                await asyncio.wait(
                    (turn, gone),
                    timeout=min(SIGN_MS / 1_000, left_s),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if turn.done() or gone.done():
                    break
                loading = not self._models.is_loaded(question.model)
                writer.write(encode_line(AnswerWaits(loading, queue.index(turn))))
            if turn.done():
                loaded = turn.result()
                return None if gone.done() else loaded
        finally:
            queue.remove(turn)
            if not queue:
                self._waiting.pop(of, None)
            if not turn.done():
                turn.cancel()
                await asyncio.wait((turn,))
        if gone.done():
            return None
        message = f"Other answers came first for {wait_s:.0f} s. Send fewer questions at once."
        raise Refusal(BUSY, message)

    def _refusal(self, tenant: str, size: int) -> QuestionRefused | None:
        """Why a question is not taken now: no tenant may fill the engine alone.

        A replica has one tenant, and is full before that has too many.
        """
        waiting, limits = self._asked.total(), self._limits
        if waiting >= limits.all_max or self._bytes + size > WAITING_BYTES_MAX:
            message = "As many questions as the engine takes wait for answers. Try again later."
            return QuestionRefused(BUSY, message, self._retry_s(waiting))
        if self._asked[tenant] >= limits.tenant_max and tenant:
            message = (
                f"Rate limit reached: {limits.tenant_max} of your questions are being answered or "
                "wait. Try again when some have ended."
            )
            return QuestionRefused(TENANT_BUSY, message, self._retry_s(waiting))
        return None

    def _retry_s(self, waiting: int) -> int:
        """Return when a tenth of the waiting questions will have been answered, at this pace."""
        if len(self._ends) < 2:
            return RETRY_S_MIN
        answer_s = (self._ends[-1] - self._ends[0]) / (len(self._ends) - 1)
        return min(RETRY_S_MAX, max(RETRY_S_MIN, math.ceil(answer_s * waiting / 10)))

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
        asker = None if question.in_batch else question.asker
        tally = None if asker is None else self._meter.begin(asker)

        ends_s = loop.time() + self._limits.answer_ms_max / 1_000

        def say(reply: Reply) -> bool:
            if tally is not None and not isinstance(reply, QuestionRefused):
                tally.note(reply.spent)  # first of all: sent tokens count, even if the rest fails
            if not isinstance(reply, TextAdded) or reply.text or reply.logprobs:
                loop.call_soon_threadsafe(said.put_nowait, reply)
            if isinstance(reply, TextAdded) and loop.time() >= ends_s:
                loop.call_soon_threadsafe(said.put_nowait, cut_short(reply.spent))
                return False
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


def cut_short(spent: Spent) -> AnswerEnded:
    """The end of an answer that was stopped. spent: tokens until then."""
    return AnswerEnded("length", spent.prompt_tokens, spent.completion_tokens, spent.cached_tokens)
