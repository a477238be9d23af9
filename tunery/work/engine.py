"""What the gateway asks an engine, and what the engine says: JSON lines over a local socket.

One connection carries one question and its answer. The client closes it to stop the generation.
"""

from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from schemas.envelope import Sha256
from schemas.training import BlobFile

SOCKET: Final = "engine.sock"  # in the folder `run` of the data directory
LINE_BYTES_MAX: Final = 4 * 1024 * 1024
# codes of refusals
BUSY: Final = "busy"
TENANT_BUSY: Final = "tenant_busy"
UNSUPPORTED: Final = "unsupported"
TOO_LONG: Final = "too_long"
MALFORMED: Final = "malformed"
STALE_BASE: Final = "stale_base"
FAILED: Final = "failed"


class EngineModel(Struct, frozen=True):
    """A model as the engine loads it.

    base_id, base_path, base_sha256: the base model, and the hash that its files must have.
    context_length: tokens of its longest sequence.
    adapter: files of the version; empty: the base model itself.
    """

    base_id: str
    base_path: str
    base_sha256: Sha256
    context_length: int
    adapter: tuple[BlobFile, ...] = ()


class Sampling(Struct, frozen=True):
    """How tokens are chosen.

    temperature: 0 always takes the likeliest token.
    top_p: only the likeliest tokens with this share of the probability are considered.
    presence_penalty, frequency_penalty: against tokens that the answer has already.
    tokens_max: of the answer; None: until the context is full.
    seed: None: another one each time.
    stop: the answer ends before any of these texts.
    top_logprobs: how many tokens that might have been are told with each; None: not even its own.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    tokens_max: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    top_logprobs: int | None = None


class Asker(Struct, frozen=True):
    """Whom the tokens of an answer are counted for.

    tenant, key_id: who asks, with which API key.
    model: the base model's id, or the version's name.
    first: whether the question counts too: of several answers to one, the first says so.
    """

    tenant: str
    key_id: str
    model: str
    first: bool = True


class BlobKey(Struct, frozen=True):
    """What opens an encrypted file of an adapter, and nothing else.

    blob: its key in object storage. version: of its tenant's data key, `secret` follows from it.
    """

    blob: str
    version: bytes
    secret: bytes


class Question(Struct, frozen=True):
    """One answer is wanted.

    messages: of the conversation, each with `role` and `content`, and what chat templates know.
    response_format: JSON of any form, or of a schema, as in OpenAI's API; None: text.
    asker: None: nobody counts, as in measurements.
    prompt: a text to go on with as it is, instead of messages.
    tools: functions that the answer may call, as in OpenAI's API.
    keys: of the adapter's files, for the engine of this machine.
    """

    model: EngineModel
    messages: tuple[dict[str, Any], ...]
    sampling: Sampling
    response_format: dict[str, Any] | None = None
    asker: Asker | None = None
    prompt: str | None = None
    tools: tuple[dict[str, Any], ...] = ()
    keys: tuple[BlobKey, ...] = ()


class ToolCall(Struct, frozen=True):
    """A function that the model wants called.

    name: of the function; arguments: as JSON, which the model wrote and nobody has checked.
    """

    name: str
    arguments: str


class Spent(Struct, frozen=True):
    """Tokens of an answer so far.

    prompt_tokens: read; cached_tokens: of these, what was in memory; completion_tokens: written.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class TextAdded(Struct, frozen=True, tag="text"):
    """The answer goes on with this text.

    logprobs: of its tokens, as in OpenAI's API, where they were asked for.
    spent: with this text.
    """

    text: str
    logprobs: tuple[dict[str, Any], ...] = ()
    spent: Spent = Spent()


class AnswerEnded(Struct, frozen=True, tag="ended"):
    """The answer is complete.

    finish_reason: "stop", "tool_calls", or "length": it has as many tokens as it may.
    prompt_tokens, completion_tokens: tokens read and written.
    cached_tokens: of those read, what was in memory from an earlier question.
    tool_calls: that it ends with.
    """

    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def spent(self) -> Spent:
        """The same, as parts before it tell it."""
        return Spent(self.prompt_tokens, self.cached_tokens, self.completion_tokens)


class QuestionRefused(Struct, frozen=True, tag="refused"):
    """There is no answer, or no more of it.

    code: one of the codes of this module.
    message: what is wrong and what to do, for the client.
    """

    code: str
    message: str


Reply: TypeAlias = TextAdded | AnswerEnded | QuestionRefused
_QUESTIONS: Final = msgspec.json.Decoder(Question)
_REPLIES: Final[msgspec.json.Decoder[Reply]] = msgspec.json.Decoder(Reply)


def encode_line(record: Question | Reply) -> bytes:
    """A record as one line."""
    return msgspec.json.encode(record) + b"\n"


def decode_question(line: bytes) -> Question:
    """Raises msgspec.MsgspecError for anything else."""
    return _QUESTIONS.decode(line)


def decode_reply(line: bytes) -> Reply:
    """Raises msgspec.MsgspecError for anything else."""
    return _REPLIES.decode(line)
