"""`/v1/chat/completions`."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

from starlette.responses import StreamingResponse

from services.gateway.chat.answering import answer, questions
from services.gateway.chat.bodies import ChatRequest, messages, sampling
from services.gateway.chat.frames import frames
from services.gateway.chat.models import find_model
from services.gateway.chat.responses import Answer, AnswerIdentity, ChatCompletion, completion
from services.gateway.web.deps import Caller, WithDeps
from services.gateway.web.routing import new_router
from services.gateway.web.streams import stream_description, stream_response
from tunery.work.engine import AnswerEnded, Asker, Question, TextAdded

FINGERPRINT_DIGITS: Final = 10
STREAMED: Final = "an answer; with stream=true frames of its parts, and `[DONE]` at the end"
router = new_router("chat")


@router.post(
    "/v1/chat/completions",
    response_model=None,
    responses=stream_description(ChatCompletion, STREAMED),
)
async def create_chat_completion(
    body: ChatRequest, deps: WithDeps, caller: Caller
) -> ChatCompletion | StreamingResponse:
    """Answer a conversation with a base model or a fine-tuned version. Only numbers are kept."""
    name, model = await find_model(deps, caller, body.model)
    asker = Asker(caller.tenant, caller.key_id, name if model.adapter else model.base_id)
    question = Question(model, messages(body), sampling(body), body.response_format, asker)
    identity = AnswerIdentity(
        id=deps.fresh("chatcmpl-"),
        created=deps.clock.now_ms() // 1_000,
        model=name,
        system_fingerprint=f"fp_{model.base_sha256[:FINGERPRINT_DIGITS]}",
    )
    count = body.n or 1
    parts = answer(deps.engine, questions(question, count))
    if not body.stream:
        return await _complete(identity, parts, count)
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    first = await anext(parts)  # an error is an error's response, not the beginning of an answer
    answer_frames = frames(identity, _again(first, parts), count=count, with_usage=with_usage)
    return stream_response(answer_frames)


async def _complete(
    identity: AnswerIdentity, parts: AsyncIterator[tuple[int, TextAdded | AnswerEnded]], count: int
) -> ChatCompletion:
    answers = [Answer() for _ in range(count)]
    async for index, part in parts:
        if isinstance(part, TextAdded):
            answers[index].texts.append(part.text)
            answers[index].logprobs.extend(part.logprobs)
        else:
            answers[index].ended = part
    return completion(identity, answers)


async def _again(
    first: tuple[int, TextAdded | AnswerEnded],
    parts: AsyncGenerator[tuple[int, TextAdded | AnswerEnded], None],
) -> AsyncGenerator[tuple[int, TextAdded | AnswerEnded], None]:
    async with aclosing(parts):
        yield first
        async for part in parts:
            yield part
