"""`/v1/chat/completions`."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from services.gateway.chat.answering import complete, first_of, one_call
from services.gateway.chat.asking import ask, name_ignored
from services.gateway.chat.domain.bodies import ChatRequest, chat_sampling, chat_tools, messages
from services.gateway.chat.domain.responses import completion
from services.gateway.chat.frames import chat_frames
from services.gateway.web.deps import Caller, WithDeps
from services.gateway.web.routing import new_router
from services.gateway.web.streams import json_response, stream_description, stream_response
from tunery.work.engine import Question

STREAMED: Final = "an answer; with stream=true frames of its parts, and `[DONE]` at the end"
router = new_router("chat")


@router.post(
    "/v1/chat/completions",
    response_model=None,
    responses=stream_description(dict[str, Any], STREAMED),
)
async def create_chat_completion(
    body: ChatRequest, request: Request, deps: WithDeps, caller: Caller
) -> Response:
    """Answer a conversation with a base model or a fine-tuned version. Only numbers are kept."""
    name_ignored(request, body)
    count, use = body.n or 1, chat_tools(body)
    identity, parts = await ask(
        deps,
        caller,
        body.model,
        body.user,
        lambda model: Question(
            model, messages(body), chat_sampling(body), body.response_format, **use._asdict()
        ),
        prefix="chatcmpl-",
        count=count,
    )
    if body.parallel_tool_calls is False:
        parts = one_call(parts)
    if not body.stream:
        return json_response(completion(identity, await complete(parts, count)))
    begun, headers = await first_of(parts)
    shown = chat_frames(identity, begun, count=count, with_usage=body.with_usage)
    return stream_response(shown, headers)
