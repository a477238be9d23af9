"""Protocol between the engine and a process that computes answers with tensors.

JSON lines: orders over standard input, replies over standard output. The process writes tokens; the
engine makes text of them. Each order has a number, which its replies repeat.
"""

from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from tunery.work.engine import Sampling


class LoadModel(Struct, frozen=True, tag="load"):
    """Load a model; a base model is loaded once for all its adapters."""

    number: int
    model: str  # a name for later orders
    base: str  # folder of the base model
    adapter: str | None  # folder of the adapter; None: the base model itself


class WriteAnswer(Struct, frozen=True, tag="write"):
    """Write tokens after a prompt, at most `tokens_max`. `sampling.stop` is the engine's work."""

    number: int
    model: str
    prompt: tuple[int, ...]
    sampling: Sampling
    tokens_max: int
    ends: tuple[int, ...] = ()  # tokens that end it; empty: the base model's


class AbandonAnswer(Struct, frozen=True, tag="abandon"):
    """Write no more of the answer with this number."""

    number: int


class DropModel(Struct, frozen=True, tag="drop"):
    """Free the memory of a model."""

    number: int
    model: str


class ModelReady(Struct, frozen=True, tag="ready"):
    number: int


class ModelUnloadable(Struct, frozen=True, tag="unloadable"):
    """A model cannot be loaded."""

    number: int
    why: str  # for the log of the engine


class TokenWritten(Struct, frozen=True, tag="token"):
    """One more token of an answer."""

    number: int
    token: int
    logprob: float | None = None  # its own; None: not requested
    # tokens that might have been with theirs, the likeliest first
    likely: tuple[tuple[int, float], ...] = ()


class TokensEnded(Struct, frozen=True, tag="ended"):
    """The answer is complete."""

    number: int
    finish_reason: str  # "stop" or "length"
    tokens: int  # how many it took, with the one that ended it


ProcessOrder: TypeAlias = LoadModel | WriteAnswer | AbandonAnswer | DropModel
ProcessReply: TypeAlias = ModelReady | ModelUnloadable | TokenWritten | TokensEnded
_ORDERS: Final[msgspec.json.Decoder[ProcessOrder]] = msgspec.json.Decoder(ProcessOrder)
_REPLIES: Final[msgspec.json.Decoder[ProcessReply]] = msgspec.json.Decoder(ProcessReply)


def encode_record(record: ProcessOrder | ProcessReply) -> bytes:
    """A record as one line."""
    return msgspec.json.encode(record) + b"\n"


def decode_process_order(line: bytes) -> ProcessOrder:
    """Raises msgspec.MsgspecError for anything else."""
    return _ORDERS.decode(line)


def decode_process_reply(line: bytes) -> ProcessReply:
    """Raises msgspec.MsgspecError for anything else."""
    return _REPLIES.decode(line)
