"""Protocol between the gateway and an engine: JSON lines over a local socket.

One connection carries one question and its answer. The client closes it to stop the generation.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from schemas.envelope import Sha256
from schemas.training import BlobFile
from tunery.work.own_chat import OwnChat

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
    """A model as the engine loads it."""

    # base_id, base_path, base_sha256: the base model, and the hash that its files must have
    base_id: str
    base_path: str
    base_sha256: Sha256
    context_length: int  # tokens of its longest sequence
    adapter: tuple[BlobFile, ...] = ()  # files of the version; empty: the base model itself
    # chat template and end tokens of a checkpoint, beside which no files have them
    chat: OwnChat | None = None


class Sampling(Struct, frozen=True):
    """How tokens are chosen."""

    temperature: float = 1.0  # 0 always takes the likeliest token
    # only the likeliest tokens with this share of the probability are considered
    top_p: float = 1.0
    # presence_penalty, frequency_penalty: against tokens that the answer has already
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    # largest number of tokens of the answer; None: until the context is full
    tokens_max: int | None = None
    seed: int | None = None  # None: another one each time
    stop: tuple[str, ...] = ()  # the answer ends before any of these texts
    # number of likely alternatives returned with each token; None: no probabilities
    top_logprobs: int | None = None


class Asker(Struct, frozen=True):
    """Whom the tokens of an answer are counted for."""

    # tenant, key_id: tenant and API key of the question
    tenant: str
    key_id: str
    model: str  # the base model's id, or the version's name
    # whether the question counts too: of several answers to one, the first says so
    first: bool = True


class BlobKey(Struct, frozen=True):
    """Key that decrypts one encrypted file of an adapter, and nothing else."""

    blob: str  # key of the object in storage
    version: bytes  # the tenant's data key from which `secret` derives
    secret: bytes


class Question(Struct, frozen=True):
    """One answer is wanted."""

    model: EngineModel
    # messages of the conversation, each with `role` and `content`, and other keys of chat templates
    messages: tuple[dict[str, Any], ...]
    sampling: Sampling
    # JSON of any form, or of a schema, as in OpenAI's API; None: text
    response_format: dict[str, Any] | None = None
    asker: Asker | None = None  # None: not counted, as in measurements
    prompt: str | None = None  # a text to continue with as it is, instead of messages
    embed: bool = False  # no answer is wanted, but the embedding of `prompt`
    tools: tuple[dict[str, Any], ...] = ()  # functions that the answer may call, as in OpenAI's API
    forced: tuple[str, ...] = ()  # functions of which the answer calls one; empty: as it likes
    strict: tuple[str, ...] = ()  # functions whose arguments are held to their schema
    # a row of a batch: other questions come first, and who asks counts its tokens
    in_batch: bool = False
    keys: tuple[BlobKey, ...] = ()  # keys of the adapter's files, for the engine of this machine


class ToolCall(Struct, frozen=True):
    """A function that the model wants called."""

    name: str  # name of the function
    arguments: str  # JSON, held to the function's schema where it was forced or strict


class Spent(Struct, frozen=True):
    """Tokens of an answer so far."""

    prompt_tokens: int = 0  # prompt tokens, of which `cached_tokens` were in memory
    cached_tokens: int = 0
    completion_tokens: int = 0  # generated tokens


class TextAdded(Struct, frozen=True, tag="text"):
    """The answer continues with this text."""

    text: str
    # log-probabilities of its tokens, in the form of OpenAI's API, where requested
    logprobs: tuple[dict[str, Any], ...] = ()
    spent: Spent = Spent()  # with this text


class AnswerEnded(Struct, frozen=True, tag="ended"):
    """The answer is complete."""

    finish_reason: str  # "stop", "tool_calls", or "length": it has as many tokens as it may
    # prompt_tokens, completion_tokens: tokens read and written
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0  # number of prompt tokens that were in memory from an earlier question
    tool_calls: tuple[ToolCall, ...] = ()  # tool calls at its end
    # embedding of the prompt, of length 1, where the question asks for it
    embedding: tuple[float, ...] = ()

    @property
    def spent(self) -> Spent:
        """Token counts of the whole answer, in the format of the partial counts before it."""
        return Spent(self.prompt_tokens, self.cached_tokens, self.completion_tokens)


class AnswerWaits(Struct, frozen=True, tag="waits"):
    """Keep-alive of an answer that has not begun, sent every few seconds."""

    loading: bool  # its model is being loaded; else other answers come first
    ahead: int = 0  # questions of the same tenant that wait for the same model since before


class QuestionRefused(Struct, frozen=True, tag="refused"):
    """There is no answer, or no more of it."""

    code: str  # one of the codes of this module
    message: str  # what is wrong and what to do, for the client
    retry_s: int | None = None  # when to try again, by the rate of the last answers


Reply: TypeAlias = TextAdded | AnswerEnded | QuestionRefused  # of a model
EngineReply: TypeAlias = AnswerWaits | Reply


def encode_line(record: Question | EngineReply) -> bytes:
    return msgspec.json.encode(record) + b"\n"


# these raise msgspec.MsgspecError for anything else
decode_question: Final = msgspec.json.Decoder[Question](Question).decode
decode_reply: Final[Callable[[bytes], EngineReply]] = msgspec.json.Decoder(EngineReply).decode
