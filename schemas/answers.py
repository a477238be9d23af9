"""Messages of `account` about tokens of answers: what models read and wrote for a tenant."""

from typing import Annotated

from msgspec import Meta

from schemas.envelope import Message, Part
from schemas.units import PPM, Micro, Ms, Tokens

USES_MAX = 1_000  # of one command
NUMBERED_ANSWERS = "answers."  # before the name of a counter, in the `source.stream` of a count

Count = Annotated[int, Meta(ge=0)]


class AnswerUse(Part):
    """What one key asked one model in a short time.

    key_id: the API key.
    model: a base model's id, or a version's name.
    requests: that were begun; several answers to one question are one request.
    prompt_tokens: read; those of one request count once.
    cached_tokens: of these, what was in memory from an earlier question.
    completion_tokens: written, also where the client left before the end.
    engine_ms: from a question's turn to its end, of each answer.
    """

    key_id: str
    model: str
    requests: Count
    prompt_tokens: Annotated[Tokens, Meta(ge=0)]
    cached_tokens: Annotated[Tokens, Meta(ge=0)]
    completion_tokens: Annotated[Tokens, Meta(ge=0)]
    engine_ms: Annotated[Ms, Meta(ge=0)]


class AnswerCost(Part):
    """What answers to one key cost, exactly: tokens times the prices of a million of them.

    key_id: the API key.
    currency: that of the price book.
    micro, millionths: whole millionths of the currency, and the rest in millionths of one. Both
      together are below zero where tokens turn out to be from memory that were counted as read.
    """

    key_id: str
    currency: str
    micro: Micro
    millionths: Annotated[int, Meta(ge=0, lt=PPM)]


# --- commands
class CountAnswers(Message):
    """What an engine has answered in a few seconds.

    uses: one of each key and model.
    """

    uses: tuple[AnswerUse, ...]


# --- events
class AnswersCounted(Message):
    """The tenant's models have answered. The time of the use is that of the record.

    uses: one of each key and model.
    costs: of each key, where the tenant's price book has prices of answers.
    """

    uses: tuple[AnswerUse, ...]
    costs: tuple[AnswerCost, ...] = ()
