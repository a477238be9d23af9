"""Asks models for scores on behalf of a process that grades answers: it has no network.

The process chooses what stands in the messages. Which model is asked, and how, follows from the
job's grader; the address and the key are the operator's, and stay with the agent.
"""

import asyncio
import logging
from pathlib import Path
from typing import Final

import msgspec

from services.trainer.ports import ChatCompletions
from tunery.graders.grader import Grader, ScoreMessage, ScoreModel, parts_of
from tunery.graders.grading import ENDPOINT_ERROR, ScoreUnavailable
from tunery.graders.model_scores import request_body, score_of
from tunery.platform.chat_endpoint import EndpointError
from tunery.platform.local_socket import listen_at
from tunery.runtime.telemetry.logs import log_event
from tunery.work.questions import (
    LINE_BYTES_MAX,
    ScoreQuestion,
    ScoreReply,
    ScoresFailed,
    ScoresGiven,
    decode_questions,
    encode_line,
)

LOG: Final = logging.getLogger(__name__)
SOCKET: Final = "scores.socket"
LINE_S_MAX: Final = 300.0  # of all questions of a line, with their pauses
DENIED: Final = frozenset((401, 403))
REFUSED: Final = frozenset((400, 404, 413, 415, 422))


class ScoreRelay:
    """The socket of one lease.

    endpoint: endpoint of the operator
    grader: grader of the job
    """

    def __init__(self, endpoint: ChatCompletions, grader: Grader) -> None:
        self._endpoint, self._parts = endpoint, parts_of(grader)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, folder: Path) -> Path:
        """Listen in a folder; where. Raises OSError."""
        path = folder / SOCKET
        self._server = await asyncio.start_unix_server(
            self._serve, sock=listen_at(path), limit=LINE_BYTES_MAX
        )
        return path

    async def close(self) -> None:
        """Listen no more, and ask nothing more."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a task serves a connection"  # noqa: S101  # asyncio makes one
        self._tasks.add(task)
        try:
            while line := await reader.readline():
                writer.write(encode_line(await self._reply(line)))
                await writer.drain()
        except (OSError, ValueError, msgspec.MsgspecError) as error:  # the process sees its end
            log_event(LOG, logging.WARNING, "scores.broken_off", error)
        except asyncio.CancelledError:  # by `close`; what asyncio calls next would raise it again
            log_event(LOG, logging.DEBUG, "scores.closed")
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _reply(self, line: bytes) -> ScoreReply:
        questions = decode_questions(line).questions
        tasks = [asyncio.create_task(self._score(question)) for question in questions]
        try:
            async with asyncio.timeout(LINE_S_MAX):
                return ScoresGiven(tuple(await asyncio.gather(*tasks)))
        except TimeoutError:
            return failed(f"the endpoint needs more than {LINE_S_MAX:g} s")
        except EndpointError as error:
            why = str(error)
            log_event(LOG, logging.WARNING, "scores.unavailable", status=error.status, why=why)
            return failed(why, error.status)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _score(self, question: ScoreQuestion) -> float | str:
        part = self._parts[question.part] if question.part < len(self._parts) else None
        if not isinstance(part, ScoreModel):
            raise ValueError(f"part {question.part} of the grader asks no model")
        roles = (message.role for message in part.input)
        messages = [
            ScoreMessage(role, text) for role, text in zip(roles, question.texts, strict=True)
        ]
        answer = await self._endpoint.complete(request_body(part, messages))
        try:
            return score_of(answer)
        except ScoreUnavailable as error:
            if error.name == ENDPOINT_ERROR:
                raise EndpointError(str(error)) from None
            return error.name


def failed(problem: str, status: int | None = None) -> ScoresFailed:
    """Return the failure that the process reports. status: of the endpoint's answer, if any."""
    message = f"models that score cannot be asked: {problem}"
    if status in DENIED:
        advice = "Tell the operator: the agent's TUNERY_NODE_SCORE_KEY is refused."
        return ScoresFailed("bad_node", message, advice)
    if status in REFUSED:
        advice = "Try the grader with POST /v1/fine_tuning/alpha/graders/run, and correct it."
        return ScoresFailed("user", message, advice)
    advice = "The job goes on once the endpoint of TUNERY_NODE_SCORE_URL answers."
    return ScoresFailed("platform", message, advice)
