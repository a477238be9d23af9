"""`/v1/completions`: a model continues with a text."""

from collections.abc import AsyncIterator, Sequence
from itertools import accumulate
from typing import Any, Final, Literal

from msgspec.structs import replace
from starlette.responses import StreamingResponse

from services.gateway.chat.answering import Parts, complete, first_of
from services.gateway.chat.asking import ask
from services.gateway.chat.domain.bodies import sampling
from services.gateway.chat.domain.completion_bodies import COMPLETION_TOKENS, CompletionRequest
from services.gateway.chat.domain.responses import (
    AnswerIdentity,
    CompletionUsage,
    FinishReason,
    finish_reason,
    usage_of,
)
from services.gateway.chat.frames import frames
from services.gateway.web.deps import Caller, WithDeps
from services.gateway.web.domain.responses import Response
from services.gateway.web.routing import new_router
from services.gateway.web.streams import stream_description, stream_response
from tunery.work.engine import AnswerEnded, Question, TextAdded

STREAMED: Final = "a text; with stream=true frames of its parts, and `[DONE]` at the end"
router = new_router("chat")


class TextLogprobs(Response):
    """One entry for each token. top_logprobs: tokens that might have been."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TextChoice(Response):
    text: str
    index: int
    logprobs: TextLogprobs | None = None
    finish_reason: FinishReason | None = None


class TextCompletion(Response):
    """`system_fingerprint` changes when the bytes of the base model do."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[TextChoice]
    usage: CompletionUsage | None = None
    system_fingerprint: str


@router.post(
    "/v1/completions",
    response_model=None,
    responses=stream_description(TextCompletion, STREAMED),
)
async def create_completion(
    body: CompletionRequest, deps: WithDeps, caller: Caller
) -> TextCompletion | StreamingResponse:
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
    if body.stream:
        return stream_response(_frames(identity, await first_of(parts), count, body.with_usage))
    answers = await complete(parts, count * len(body.prompt))
    choices = [
        _choice(index, "".join(written.texts), written.logprobs, written.ended)
        for index, written in enumerate(answers)
    ]
    usage = usage_of([written.ended for written in answers], count)
    return TextCompletion(**vars(identity), choices=choices, usage=usage)


def _frames(
    identity: AnswerIdentity, parts: Parts, count: int, with_usage: bool
) -> AsyncIterator[bytes]:
    def chunk_of(index: int, part: TextAdded | AnswerEnded) -> TextCompletion:
        if isinstance(part, AnswerEnded):
            choice = _choice(index, "", (), part)
        else:
            choice = _choice(index, part.text, part.logprobs, None)
        return TextCompletion(**vars(identity), choices=[choice])

    def usage_chunk(ended: Sequence[AnswerEnded]) -> TextCompletion:
        return TextCompletion(**vars(identity), choices=[], usage=usage_of(ended, count))

    return frames(parts, chunk_of, usage_chunk, with_usage=with_usage)


def _choice(
    index: int, text: str, logprobs: Sequence[dict[str, Any]], ended: AnswerEnded | None
) -> TextChoice:
    return TextChoice(
        text=text,
        index=index,
        logprobs=_logprobs(logprobs),
        finish_reason=None if ended is None else finish_reason(ended),
    )


def _logprobs(tokens: Sequence[dict[str, Any]]) -> TextLogprobs | None:
    if not tokens:
        return None
    texts = [token["token"] for token in tokens]
    return TextLogprobs(
        tokens=texts,
        token_logprobs=[token["logprob"] for token in tokens],
        top_logprobs=[
            {likely["token"]: likely["logprob"] for likely in token["top_logprobs"]}
            for token in tokens
        ],
        text_offset=list(accumulate(map(len, texts[:-1]), initial=0)),
    )
