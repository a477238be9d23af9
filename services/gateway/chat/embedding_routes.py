"""`/v1/embeddings`: texts as vectors, by a base model or by a version of a tenant's."""

import array
import base64
import sys
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from services.gateway.chat.answering import complete
from services.gateway.chat.asking import ask
from services.gateway.chat.domain.completion_bodies import EmbeddingRequest
from services.gateway.web.deps import Caller, WithDeps
from services.gateway.web.routing import new_router
from services.gateway.web.streams import json_response
from tunery.work.engine import Question, Sampling

router = new_router("chat")


@router.post(
    "/v1/embeddings",
    response_model=None,
    responses={200: {"model": dict[str, Any], "description": "the vectors, in the texts' order"}},
)
async def create_embeddings(body: EmbeddingRequest, deps: WithDeps, caller: Caller) -> Response:
    """Return the vector of a text, or of each of a list. Only numbers are kept."""
    identity, parts = await ask(
        deps,
        caller,
        body.model,
        body.user,
        lambda model: Question(model, (), Sampling(), embed=True),
        prefix="embd-",
        prompts=body.input,
    )
    answers = await complete(parts, len(body.input))
    ended = [answer.ended for answer in answers if answer.ended is not None]
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": _written(each.embedding, body.encoding_format),
        }
        for index, each in enumerate(ended)
    ]
    tokens = sum(each.prompt_tokens for each in ended)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json_response({"object": "list", "data": data, "model": identity.model, "usage": usage})


def _written(vector: Sequence[float], encoding: str) -> Sequence[float] | str:
    """The vector as it is, or its little-endian float32 numbers in base64."""
    if encoding == "float":
        return vector
    numbers = array.array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers).decode()
