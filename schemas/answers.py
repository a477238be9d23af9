"""Messages of `account` about tokens of answers: what models read and wrote for a tenant."""

from typing import Annotated

from msgspec import Meta

from schemas.envelope import Message, Part
from schemas.units import PPM, Micro, Ms, Tokens

USES_MAX = 1_000  # of one command
NUMBERED_ANSWERS = "answers."  # before the name of a counter, in the `source.stream` of a count

Count = Annotated[int, Meta(ge=0)]


class AnswerUse(Part):
    """Usage of one model by one API key in a short time."""

    key_id: str  # the API key
    model: str  # a base model's id, or a version's name
    requests: Count  # requests that began; several answers to one question are one request
    # tokens of prompts; those of one request count once
    prompt_tokens: Annotated[Tokens, Meta(ge=0)]
    # prompt tokens that were in memory from an earlier question
    cached_tokens: Annotated[Tokens, Meta(ge=0)]
    # generated tokens, also where the client left before the end
    completion_tokens: Annotated[Tokens, Meta(ge=0)]
    # engine time of all answers, each from the start of its question to its end
    engine_ms: Annotated[Ms, Meta(ge=0)]


class AnswerCost(Part):
    """Exact cost of answers to one key: tokens times their prices per million."""

    key_id: str  # the API key
    currency: str  # currency of the price book
    # micro, millionths: whole millionths of the currency, and the rest in millionths of one. Both
    # together are below zero where tokens turn out to be from memory that were counted as read.
    micro: Micro
    millionths: Annotated[int, Meta(ge=0, lt=PPM)]


# --- commands
class CountAnswers(Message):
    """Record the answers that an engine gave in a few seconds."""

    uses: tuple[AnswerUse, ...]  # one usage record for each key and model


# --- events
class AnswersCounted(Message):
    """The tenant's models have answered. The time of the use is that of the record."""

    uses: tuple[AnswerUse, ...]  # one of each key and model
    # cost for each key, where the tenant's price book has prices of answers
    costs: tuple[AnswerCost, ...] = ()
    # version of that book, which prices them on the invoice too, even if the plan changes; empty:
    # not recorded then
    price_version: str = ""
