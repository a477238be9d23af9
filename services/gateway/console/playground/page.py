"""Ask two models the same question, vote blind, and keep what is a good evaluation item."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from random import SystemRandom
from typing import Any, Final

from httpx_sse import EventSource
from starlette.responses import Response
from starlette.routing import Route

from services.gateway.console.calls import CallRefused, refusal_of
from services.gateway.console.playground.items import save
from services.gateway.console.visits import Visit, form_of, route
from services.gateway.console.words import number
from services.gateway.web.streams import event_frame, stream_response

CHAT: Final = "/v1/chat/completions"
EVERY_S: Final = 0.1
SIDES: Final = ("a", "b")
TOKENS_MAX: Final = 512
LOADING_S_MAX: Final = 180  # for a model that is not loaded yet
AGAIN_S: Final = 5.0
AWAY_STATUSES: Final = (429, 503)  # nothing has been answered
BROKEN: Final = "The answer broke off. Ask again."


@route("/playground")
async def show(visit: Visit) -> Response:
    """Show the form; `model` of the URL is the first side, its base model the second."""
    models = (await visit.api.get("/v1/models"))["data"]
    wanted = visit.request.query_params.get("model", "")
    chosen = next((model for model in models if model["id"] == wanted), None)
    parent = (chosen or {}).get("parent") or ""
    sides = {"a": wanted or (models[0]["id"] if models else ""), "b": parent}
    return visit.page("playground/playground.html", models=models, sides=sides)


@route("/playground/ask", "POST")
async def ask(visit: Visit) -> Response:
    """Stream both answers as they are written, until both have ended."""
    form = await form_of(visit.request)
    texts = {name: str(value) for name, value in form.items()}
    messages = [
        {"role": role, "content": texts[role]} for role in ("system", "user") if texts.get(role)
    ]
    models = {side: texts[side] for side in SIDES if texts.get(side)}
    body = {
        "messages": messages,
        "temperature": number(texts.get("temperature") or "0", float),
        "max_completion_tokens": TOKENS_MAX,
        "stream": True,
    }
    return stream_response(_frames(visit, models, body, is_blind="blind" in texts))


@route("/playground/items", "POST")
async def keep(visit: Visit) -> Response:
    """Save a question with the answer that it should get as an evaluation item."""
    form = await visit.form()
    try:
        messages = json.loads(form.get("messages", ""))
    except (ValueError, RecursionError) as error:
        raise CallRefused(400, "invalid_request", "The messages are no JSON.") from error
    answer = {"role": "assistant", "content": form.get("answer", "")}
    if not isinstance(messages, list) or not answer["content"]:
        raise CallRefused(400, "invalid_request", "Write the answer that the question should get.")
    saved = await save(visit.api, {"messages": [*messages, answer]})
    return visit.page("playground/saved.html", **saved)


async def _frames(
    visit: Visit, models: Mapping[str, str], body: Mapping[str, Any], *, is_blind: bool
) -> AsyncIterator[bytes]:
    sides = [*models.items()]
    if is_blind:
        SystemRandom().shuffle(sides)
    seen = {
        "is_blind": is_blind,
        "messages": body["messages"],
        "pair": " / ".join(sorted(models.values())),
    }
    answers = {
        side: {"model": model, "text": "", "failure": "", "waits": ""} for side, model in sides
    }
    tasks = [
        asyncio.create_task(_fill(visit, answer, {**body, "model": answer["model"]}))
        for answer in answers.values()
    ]
    try:
        shown = ""
        while True:
            is_done = all(task.done() for task in tasks)
            for answer, task in zip(answers.values(), tasks, strict=True):
                if task.done() and task.exception() is not None:
                    answer["failure"] = BROKEN
            text = visit.part("playground/answers.html", answers=answers, is_done=is_done, **seen)
            if text != shown:
                yield event_frame(None, text)
            if is_done:
                return
            shown = text
            await asyncio.sleep(EVERY_S)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _fill(visit: Visit, answer: dict[str, str], body: Mapping[str, Any]) -> None:
    """Add the parts of an answer to its text as they come; ask again while the engine is busy."""
    until_s = time.monotonic() + LOADING_S_MAX
    while await _is_away(visit, answer, body):
        if time.monotonic() >= until_s:
            answer["failure"], answer["waits"] = answer["waits"], ""
            return
        await asyncio.sleep(AGAIN_S)


async def _is_away(visit: Visit, answer: dict[str, str], body: Mapping[str, Any]) -> bool:
    """Ask once; return whether the engine has answered nothing and may do so later."""
    async with visit.api.stream("POST", CHAT, json=body) as response:
        answer["waits"] = ""
        if not response.is_success:
            await response.aread()
            is_away = response.status_code in AWAY_STATUSES
            answer["waits" if is_away else "failure"] = refusal_of(response).message
            return is_away
        async for part in EventSource(response).aiter_sse():
            if part.data == "[DONE]":
                break
            content = json.loads(part.data)
            if "error" in content:
                answer["failure"] = str(content["error"]["message"])
            for choice in content.get("choices", ()):
                answer["text"] += choice["delta"].get("content") or ""
    return False


ROUTES: Final[tuple[Route, ...]] = (show, ask, keep)
