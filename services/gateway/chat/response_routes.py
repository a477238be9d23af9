"""`/v1/responses`: answers in the form of OpenAI's Responses API. Nothing is stored."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import count
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from services.gateway.chat.answering import Parts, complete, first_of, one_call
from services.gateway.chat.asking import ask, name_ignored
from services.gateway.chat.domain.completion_bodies import ResponseRequest
from services.gateway.chat.domain.responses import AnswerIdentity, called, usage_of
from services.gateway.chat.frames import sign_of
from services.gateway.web.deps import Caller, WithDeps
from services.gateway.web.domain.errors import ApiError
from services.gateway.web.routing import new_router
from services.gateway.web.streams import json_response, stream_description, stream_response
from tunery.work.engine import AnswerEnded, AnswerWaits, Question, TextAdded

STREAMED: Final = "a response; with stream=true its events, the last of which holds all of it"
router = new_router("chat")


@router.post(
    "/v1/responses",
    response_model=None,
    responses=stream_description(dict[str, Any], STREAMED),
)
async def create_response(
    body: ResponseRequest, request: Request, deps: WithDeps, caller: Caller
) -> Response:
    """Answer with text, in the form of OpenAI's Responses API. Only numbers are kept."""
    name_ignored(request, body)
    use = body.tool_use()
    identity, parts = await ask(
        deps,
        caller,
        body.model,
        body.user,
        lambda model: Question(model, body.messages(), body.sampling(), body.text, **use._asdict()),
        prefix="resp_",
    )
    if body.parallel_tool_calls is False:
        parts = one_call(parts)
    if body.stream:
        begun, headers = await first_of(parts)
        return stream_response(_events(body, identity, begun), headers)
    (written,) = await complete(parts, 1)
    return json_response(_response(body, identity, "".join(written.texts), written.ended))


async def _events(
    body: ResponseRequest, identity: AnswerIdentity, parts: Parts
) -> AsyncIterator[bytes]:
    numbers = count()

    def event(kind: str, **fields: Any) -> bytes:
        record = {"type": kind, "sequence_number": next(numbers), **fields}
        return f"event: {kind}\ndata: ".encode() + msgspec.json.encode(record) + b"\n\n"

    begun = _response(body, identity, "", None)
    item = {"item_id": _item_id(identity), "output_index": 0, "content_index": 0}
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)

    def begin_message() -> bytes:
        empty = {**_message(identity, "", "in_progress"), "content": []}
        added = event("response.output_item.added", output_index=0, item=empty)
        return added + event("response.content_part.added", part=_text_part(""), **item)

    texts, ended = list[str](), None
    try:
        async with aclosing(parts):
            async for _, part in parts:
                if isinstance(part, TextAdded):
                    if not texts:
                        yield begin_message()
                    texts.append(part.text)
                    yield event("response.output_text.delta", delta=part.text, logprobs=[], **item)
                elif isinstance(part, AnswerWaits):
                    yield sign_of(part)
                else:
                    ended = part
    except ApiError as error:
        yield event("error", code=error.code, message=error.message, param=error.param)
        return
    text = "".join(texts)
    response = _response(body, identity, text, ended)
    for index, output in enumerate(response["output"]):
        if output["type"] == "message":
            if not texts:
                yield begin_message()
            yield event("response.output_text.done", text=text, logprobs=[], **item)
            yield event("response.content_part.done", part=_text_part(text), **item)
        else:
            position = {"item_id": output["id"], "output_index": index}
            empty = {**output, "arguments": "", "status": "in_progress"}
            yield event("response.output_item.added", output_index=index, item=empty)
            written = output["arguments"]
            yield event("response.function_call_arguments.delta", delta=written, **position)
            named = {"arguments": written, "name": output["name"]}
            yield event("response.function_call_arguments.done", **named, **position)
        yield event("response.output_item.done", output_index=index, item=output)
    yield event(f"response.{response['status']}", response=response)


def _response(
    body: ResponseRequest, identity: AnswerIdentity, text: str, ended: AnswerEnded | None
) -> dict[str, Any]:
    """The response so far; `ended` is None until its text is complete."""
    cut = ended is not None and ended.finish_reason == "length"
    status = "in_progress" if ended is None else "incomplete" if cut else "completed"
    return {
        "id": identity.id,
        "object": "response",
        "created_at": identity.created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "model": identity.model,
        "output": [] if ended is None else _output(identity, text, status, ended),
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": None,
        "store": False,
        "temperature": body.sampling().temperature,
        "text": {"format": _format(body)},
        "tool_choice": _choice(body),
        "tools": [tool.model_dump(exclude_unset=True) for tool in body.tools or ()],
        "top_p": body.sampling().top_p,
        "truncation": "disabled",
        "usage": None if ended is None else _usage(identity, ended),
    }


def _output(
    identity: AnswerIdentity, text: str, status: str, ended: AnswerEnded
) -> list[dict[str, Any]]:
    """A message, unless there is nothing but calls; then the calls."""
    calls = [
        {
            "id": f"fc_{call['id'].removeprefix('call_')}",
            "type": "function_call",
            "status": "completed",
            "call_id": call["id"],
            **call["function"],
        }
        for call in called(identity, 0, ended)
    ]
    return calls if calls and not text else [_message(identity, text, status), *calls]


def _choice(body: ResponseRequest) -> str | dict[str, str]:
    choice = body.tool_choice or "auto"
    return {"type": "function", **choice} if isinstance(choice, dict) else choice


def _format(body: ResponseRequest) -> dict[str, Any]:
    match body.text:
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            return {"type": "json_schema", "name": "schema", "schema": schema}
        case {"type": str(kind)}:
            return {"type": kind}
        case _:
            return {"type": "text"}


def _usage(identity: AnswerIdentity, ended: AnswerEnded) -> dict[str, Any]:
    usage = usage_of(identity, [ended])
    return {
        "input_tokens": usage.pop("prompt_tokens"),
        "input_tokens_details": usage.pop("prompt_tokens_details"),
        "output_tokens": usage.pop("completion_tokens"),
        "output_tokens_details": {"reasoning_tokens": 0},
        **usage,
    }


def _message(identity: AnswerIdentity, text: str, status: str) -> dict[str, Any]:
    return {
        "id": _item_id(identity),
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [_text_part(text)],
    }


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _item_id(identity: AnswerIdentity) -> str:
    return f"msg_{identity.id.removeprefix('resp_')}"
