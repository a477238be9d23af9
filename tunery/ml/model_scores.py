"""Scores that models give to answers, asked through the agent of the node.

Each question is asked once: what was said is kept by its content, and is part of every checkpoint.
So an attempt that continues from one rewards what it has seen as the attempt before did, whatever
the model would say today.
"""

import json
import os
import socket
import stat
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from tunery.graders.grader import Grader, ScoreMessage, ScoreModel, parts_of
from tunery.graders.grading import Question, ScoreUnavailable, questions_of
from tunery.ml.checkpoints import canonical_json
from tunery.platform.local_socket import connect_to
from tunery.work.exits import WorkError
from tunery.work.questions import (
    LINE_BYTES_MAX,
    QUESTIONS_MAX,
    REPLY_S_MAX,
    AskScores,
    ScoreQuestion,
    ScoresFailed,
    decode_score_reply,
    encode_line,
)
from tunery.work.spec import ScoreSpec, TrainSpec

FILE: Final = "model_scores.json"
Answer: TypeAlias = float | str  # a text: OpenAI's name of why there is no number


class ModelScores:
    """Scores that models gave to answers in this training or scoring, requested through the agent.

    path: the socket of the agent
    calls_max: different questions that the job may ask
    """

    def __init__(self, path: Path, calls_max: int) -> None:
        self._path, self._calls_max = path, calls_max
        self._known: dict[str, Answer] = {}

    def learn(self, grader: Grader, samples: Iterable[tuple[Any, str]]) -> None:
        """Ask what is not known of samples: items, and answers to them. Raises WorkError.

        Raises BrokenPipeError when the agent is gone.
        """
        asked = (
            question for item, text in samples for question in questions_of(grader, item, text)
        )
        new = {key: each for each in asked if (key := _key(each)) not in self._known}
        if len(self._known) + len(new) > self._calls_max:
            message = (
                f"the grader would ask models more than {self._calls_max} questions, which is the "
                "most that a job may ask here"
            )
            advice = "Train with fewer epochs, prompts or num_generations, or ask the operator."
            raise WorkError("user", message, advice)
        parts = parts_of(grader)
        questions = [
            ScoreQuestion(parts.index(part), tuple(message.content for message in messages))
            for part, messages in new.values()
        ]
        answers: list[Answer] = []
        for first in range(0, len(questions), QUESTIONS_MAX):
            answers += _ask(self._path, questions[first : first + QUESTIONS_MAX])
        self._known |= dict(zip(new, answers, strict=True))

    def look_up(self, part: ScoreModel, messages: tuple[ScoreMessage, ...]) -> float:
        """Return the score for a question that `learn` has asked. Raises ScoreUnavailable."""
        answer = self._known[_key((part, messages))]
        if isinstance(answer, str):
            raise ScoreUnavailable("the model gave no score", answer)
        return answer

    def forget(self) -> None:
        """Know nothing: a step was tried and undone."""
        self._known = {}

    def files(self) -> dict[str, str]:
        """Return the files that a checkpoint keeps, content by name."""
        return {FILE: canonical_json(self._known)}

    def load(self, directory: Path) -> None:
        """Know what a checkpoint kept, and nothing else. Raises OSError."""
        self._known = json.loads((directory / FILE).read_text("utf-8"))


def model_scores_of(spec: TrainSpec | ScoreSpec) -> ModelScores | None:
    """Client of the agent's score socket; None: the process has no such socket."""
    if spec.score_socket is None:
        return None
    return ModelScores(Path(spec.score_socket), spec.score_calls_max)


def _key(question: Question) -> str:
    return blake2b(msgspec.json.encode(question), digest_size=16).hexdigest()


def _connection(path: Path) -> socket.socket:
    """The agent has connected standard input: a confined process may open no socket.

    A process that was started by hand connects by itself. Raises OSError.
    """
    if stat.S_ISSOCK(os.fstat(0).st_mode):
        return socket.socket(fileno=os.dup(0))
    return connect_to(path)


def _ask(path: Path, questions: Sequence[ScoreQuestion]) -> tuple[Answer, ...]:
    """One line to the agent, and one back. Raises WorkError, BrokenPipeError."""
    line = encode_line(AskScores(tuple(questions)))
    if len(line) > LINE_BYTES_MAX:
        message = f"questions of the grader have {len(line)} bytes, more than {LINE_BYTES_MAX}"
        raise WorkError("user", message, "Put less of the row into the messages of the grader.")
    try:
        with _connection(path) as connection:
            connection.settimeout(REPLY_S_MAX)
            connection.sendall(line)
            with connection.makefile("rb") as replies:
                said = replies.readline()
    except TimeoutError as error:
        message = f"the agent did not answer in {REPLY_S_MAX:g} s"
        raise WorkError("platform", message, "Run it again.") from error
    except OSError as error:
        raise BrokenPipeError(f"the agent is gone: {error}") from error
    if not said:
        raise BrokenPipeError("the agent closed the socket of scores")
    reply = decode_score_reply(said)
    if isinstance(reply, ScoresFailed):
        raise WorkError(reply.cause, reply.message, reply.advice)
    return reply.answers
