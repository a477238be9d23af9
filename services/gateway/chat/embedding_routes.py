"""`/v1/embeddings`: texts as vectors, by a base model or by a version of a tenant's."""

import array
import base64
import sys
from collections.abc import Sequence
from typing import Literal

from services.gateway.chat.answering import complete
from services.gateway.chat.asking import ask
from services.gateway.chat.domain.completion_bodies import EmbeddingRequest
from services.gateway.web.deps import Caller, WithDeps
from services.gateway.web.domain.responses import Response
from services.gateway.web.routing import new_router
from tunery.work.engine import Question, Sampling

router = new_router("chat")


class Embedding(Response):
    """embedding: a vector of length 1; in base64 its little-endian float32 numbers."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(Response):
    prompt_tokens: int
    total_tokens: int


class EmbeddingList(Response):
    """The vectors of the texts, in their order."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


@router.post("/v1/embeddings")
async def create_embeddings(
    body: EmbeddingRequest, deps: WithDeps, caller: Caller
) -> EmbeddingList:
    """Return the vector of a text, or of each of a list. Only numbers are kept."""
    identity, parts = await ask(
        deps,
        caller,
        body.model,
        body.user,
        lambda model: Question(model, (), Sampling(), embed=True),
        prefix="embd-",
        count=1,
        prompts=body.input,
    )
    answers = await complete(parts, len(body.input))
    ended = [answer.ended for answer in answers if answer.ended is not None]
    tokens = sum(each.prompt_tokens for each in ended)
    data = [
        Embedding(index=index, embedding=_written(each.embedding, body.encoding_format))
        for index, each in enumerate(ended)
    ]
    usage = EmbeddingUsage(prompt_tokens=tokens, total_tokens=tokens)
    return EmbeddingList(data=data, model=identity.model, usage=usage)


def _written(vector: Sequence[float], encoding: str) -> list[float] | str:
    if encoding == "float":
        return list(vector)
    numbers = array.array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers).decode()
