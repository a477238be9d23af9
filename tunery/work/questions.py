"""Protocol between a process that grades answers and its agent, which asks models that score.

The process has no network: its agent listens at the socket that the spec names, and asks the
endpoint of the operator. One line for each question, and one for its answer, in order.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from schemas.training import FailureCause

QUESTIONS_MAX: Final = 16  # of one line
LINE_BYTES_MAX: Final = 1 << 24
REPLY_S_MAX: Final = 360.0  # an agent that says nothing for longer is gone
CALLS_MAX: Final = 20_000  # of one job, where the operator says nothing


class ScoreQuestion(Struct, frozen=True):
    """A question to one model."""

    part: int  # part of the job's grader, counted as `parts_of` does
    texts: tuple[str, ...]  # texts of its messages, with their variables replaced


class AskScores(Struct, frozen=True):
    """Questions that wait for their answers together."""

    questions: tuple[ScoreQuestion, ...]


class ScoresGiven(Struct, frozen=True, tag="given"):
    """An answer to each question: a number, or OpenAI's name of why the model gave none."""

    answers: tuple[float | str, ...]


class ScoresFailed(Struct, frozen=True, tag="failed"):
    """The endpoint cannot be asked now: see `tunery.work.exits.WorkError`."""

    cause: FailureCause
    message: str
    advice: str


ScoreReply: TypeAlias = ScoresGiven | ScoresFailed


def encode_line(record: AskScores | ScoreReply) -> bytes:
    return msgspec.json.encode(record) + b"\n"


# these raise msgspec.MsgspecError for anything else
decode_questions: Final = msgspec.json.Decoder[AskScores](AskScores).decode
decode_score_reply: Final[Callable[[bytes], ScoreReply]] = msgspec.json.Decoder(ScoreReply).decode
