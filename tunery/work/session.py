"""Commands of a session and the answers to them, as their bytes are kept and handed to the process.

Both are MessagePack. Tokens are int32, everything that has a fraction is float32, little-endian.
The agent puts one file for each command into the folder of commands, numbered from 1; the process
takes them in that order, and puts its answers into a folder of its own.
"""

from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from schemas.session import SessionCommandKind
from schemas.units import Tokens
from tunery.work.spec import TrainSpec

LossName: TypeAlias = Literal["cross_entropy", "importance_sampling", "ppo", "cispo", "dro"]
ADAPTER_ONLY: Final = "sampler_weights"  # what may be sampled from, in a path
WHOLE_STATE: Final = "weights"  # what a training may go on from, in a path
ALPHA: Final = 32  # scale of a session's adapter


class SessionSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One attempt at a session."""

    training: TrainSpec  # without rows; its steps are numbers of commands
    commands_dir: str  # where the agent puts commands


class LossRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One sequence, and what its loss needs; all have one value for each token."""

    tokens: bytes  # int32
    targets: bytes  # int32; the token that should come after each
    weights: bytes = b""  # float32, of cross_entropy
    # logprobs, advantages: float32, of the other losses: what the sampler gave to the targets, and
    # what they were worth
    logprobs: bytes = b""
    advantages: bytes = b""


class PassBody(Struct, frozen=True, kw_only=True, tag="pass"):
    """A pass through the model, forward or also backward."""

    loss: LossName
    rows: tuple[LossRow, ...]
    settings: dict[str, float] = {}  # of the loss


class StepBody(Struct, frozen=True, kw_only=True, tag="step"):
    """A step of AdamW by the gradients since the last one."""

    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    grad_clip_norm: float  # 0: gradients are not clipped


class SaveBody(Struct, frozen=True, kw_only=True, tag="save"):
    """Save what is trained."""

    path: str  # what the client is to find it under


class LoadBody(Struct, frozen=True, kw_only=True, tag="load"):
    """Go on from what was saved."""

    path: str
    optimizer: bool  # also with the moments of the optimizer


class SampleBody(Struct, frozen=True, kw_only=True, tag="sample"):
    """Sequences that the model goes on with."""

    prompt: bytes  # int32
    samples: int
    tokens_max: int
    temperature: float
    top_p: float
    top_k: int  # 0 or below: all tokens
    seed: int
    # tokens that end a sequence; None: those of the model
    stop_tokens: tuple[int, ...] | None = None
    stop_texts: tuple[str, ...] = ()
    prompt_logprobs: bool = False
    of_base: bool = False  # the base model goes on, without what is trained


Body: TypeAlias = PassBody | StepBody | SaveBody | LoadBody | SampleBody


class PassAnswer(Struct, frozen=True, kw_only=True, tag="pass"):
    """Log-probabilities of the targets of each row, float32, and the loss."""

    logprobs: tuple[bytes, ...]
    loss: float


class StepAnswer(Struct, frozen=True, kw_only=True, tag="step"):
    """The step was taken."""

    grad_norm: float  # before it was clipped


class PathAnswer(Struct, frozen=True, kw_only=True, tag="path"):
    """Answer to a command that has saved or loaded weights."""

    path: str


class Sequence(Struct, frozen=True, kw_only=True):
    """One sampled sequence."""

    tokens: bytes  # int32
    logprobs: bytes  # float32
    stopped: bool  # it came to its end by itself


class SampleAnswer(Struct, frozen=True, kw_only=True, tag="sample"):
    """Sampled sequences."""

    sequences: tuple[Sequence, ...]
    prompt_logprobs: bytes = b""  # float32, NaN for the first token; empty: not asked for


class FailedAnswer(Struct, frozen=True, kw_only=True, tag="failed"):
    """Answer to a command that was not done."""

    message: str


Answer: TypeAlias = PassAnswer | StepAnswer | PathAnswer | SampleAnswer | FailedAnswer


class HandedCommand(Struct, frozen=True, kw_only=True):
    """A command as the agent hands it to the process."""

    name: str
    seq: int
    kind: SessionCommandKind
    body: bytes
    tokens: Tokens
    sampler: str = ""
    # folder of the weights that it begins with; empty: those that are trained
    weights_dir: str = ""
    stored: int = 0  # answers of this process, from its first, whose files are needed no more


encode_body: Final = msgspec.msgpack.Encoder().encode
_BODIES: Final = msgspec.msgpack.Decoder(Body)
_ANSWERS: Final = msgspec.msgpack.Decoder(Answer)
# raises msgspec.MsgspecError for anything else
decode_handed: Final = msgspec.msgpack.Decoder[HandedCommand](HandedCommand).decode
END: Final = b""  # content of a file in place of a command: there are no more


def decode_body(content: bytes) -> Body:
    """Raises msgspec.MsgspecError for anything else."""
    body: Body = _BODIES.decode(content)
    return body


def decode_answer(content: bytes) -> Answer:
    """Raises msgspec.MsgspecError for anything else."""
    answer: Answer = _ANSWERS.decode(content)
    return answer


def hand_over(folder: Path, number: int, content: bytes) -> None:
    """Put a command into the folder of commands. Raises OSError."""
    partial = folder / f".{number}"
    partial.write_bytes(content)
    partial.rename(folder / str(number))
