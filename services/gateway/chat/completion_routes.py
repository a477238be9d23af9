"""`/v1/completions`: a model continues with a text."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from msgspec.structs import replace
from starlette.responses import Response

from services.gateway.chat.answering import complete, first_of
from services.gateway.chat.asking import ask
from services.gateway.chat.domain.bodies import sampling
from services.gateway.chat.domain.completion_bodies import COMPLETION_TOKENS, CompletionRequest
from services.gateway.chat.domain.responses import usage_of
from services.gateway.chat.frames import frames
from services.gateway.web.deps import Caller, WithDeps
from services.gateway.web.routing import new_router
from services.gateway.web.streams import json_response, stream_description, stream_response
from tunery.work.engine import AnswerEnded, Question, TextAdded

STREAMED: Final = "a text; with stream=true frames of its parts, and `[DONE]` at the end"
router = new_router("chat")


@router.post(
    "/v1/completions",
    response_model=None,
    responses=stream_description(dict[str, Any], STREAMED),
)
async def create_completion(body: CompletionRequest, deps: WithDeps, caller: Caller) -> Response:
    """Go on with a text, or with each of a list, as it is: no chat template is used. Only numbers
    are kept.
    """
    count = body.n or 1
    how = replace(
        sampling(body), tokens_max=body.max_tokens or COMPLETION_TOKENS, top_logprobs=body.logprobs
    )
    identity, parts = await ask(
        deps,
        caller,
        body.model,
        body.user,
        lambda model: Question(model, (), how),
        prefix="cmpl-",
        count=count,
        prompts=body.prompt,
    )
    shared = {**identity.shared, "object": "text_completion"}

    def chunk_of(index: int, part: TextAdded | AnswerEnded) -> dict[str, Any]:
        if isinstance(part, AnswerEnded):
            return {**shared, "choices": [_choice(index, "", (), part.finish_reason)]}
        return {**shared, "choices": [_choice(index, part.text, part.logprobs)]}

    if body.stream:
        begun, headers = await first_of(parts)
        shown = frames(identity, begun, chunk_of, count=count, with_usage=body.with_usage)
        return stream_response(shown, headers)
    answers = await complete(parts, count * len(body.prompt))
    choices = [
        _choice(index, "".join(answer.texts), answer.logprobs, answer.ended.finish_reason)
        for index, answer in enumerate(answers)
        if answer.ended is not None
    ]
    usage = usage_of(identity, [answer.ended for answer in answers], count)
    return json_response({**shared, "choices": choices, "usage": usage})


def _choice(
    index: int, text: str, logprobs: Sequence[dict[str, Any]], finish_reason: str | None = None
) -> dict[str, Any]:
    return {
        "text": text,
        "index": index,
        "logprobs": _logprobs(logprobs),
        "finish_reason": finish_reason,
    }


def _logprobs(tokens: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Lists with an entry for each token."""
    if not tokens:
        return None
    texts = [token["token"] for token in tokens]
    return {
        "tokens": texts,
        "token_logprobs": [token["logprob"] for token in tokens],
        "top_logprobs": [
            {likely["token"]: likely["logprob"] for likely in token["top_logprobs"]}
            for token in tokens
        ],
        "text_offset": list(accumulate(map(len, texts[:-1]), initial=0)),
    }
