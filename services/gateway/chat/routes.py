"""`/v1/chat/completions`."""

from typing import Final

from starlette.responses import StreamingResponse

from services.gateway.chat.answering import answer, complete, first_of, questions
from services.gateway.chat.asking import asker, identity_of
from services.gateway.chat.bodies import ChatRequest, chat_sampling, messages
from services.gateway.chat.frames import frames
from services.gateway.chat.models import find_model
from services.gateway.chat.responses import ChatCompletion, completion
from services.gateway.web.deps import Caller, WithDeps
from services.gateway.web.routing import new_router
from services.gateway.web.streams import stream_description, stream_response
from tunery.work.engine import Question

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
    how = chat_sampling(body)
    who = asker(caller, model, name)
    question = Question(model, messages(body), how, body.response_format, who)
    identity = identity_of(deps, model, name, "chatcmpl-")
    count = body.n or 1
    parts = answer(deps.engine, questions(question, count))
    if not body.stream:
        return completion(identity, await complete(parts, count))
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    begun = await first_of(parts)
    return stream_response(frames(identity, begun, count=count, with_usage=with_usage))
