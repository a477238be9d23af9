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

from services.gateway.console.calls import FILES, CallRefused, Calls, path_to, refusal_of
from services.gateway.console.visits import Visit, form_of, route
from services.gateway.console.words import number
from services.gateway.web.streams import event_frame, stream_response
from tunery.data.findings.limits import ROWS_MIN

# Evaluation items: rows that a person keeps, as versions of one data set of the tenant.
#
# It is a file like any other: `validation_file: "evaluation@3"` measures a training by its rows.

DATASET: Final = "evaluation"
BYTES_MAX: Final = 1024 * 1024  # each version is a whole file


async def save(api: Calls, row: Any) -> dict[str, Any]:
    """Add a row to the data set; one that it has already changes nothing. Raises CallRefused."""
    versions = (await api.get(FILES, dataset=DATASET, limit=1))["data"]
    before = await _content(api, versions[0]) if versions else b""
    line = json.dumps(row, ensure_ascii=False).encode() + b"\n"
    rows = before.splitlines(keepends=True)
    if line in rows:
        return _saved(versions[0], len(rows), is_new=False)
    form = {"purpose": "fine-tune", "dataset": DATASET}
    files = {"file": (f"{DATASET}.jsonl", before + line, "application/jsonl")}
    response = await api.send("POST", FILES, data=form, files=files)
    if not response.is_success:
        raise refusal_of(response)
    return _saved(response.json(), len(rows) + 1, is_new=True)


async def _content(api: Calls, file: dict[str, Any]) -> bytes:
    if file["bytes"] > BYTES_MAX:
        message = f"{file['id']} has {file['bytes']} bytes: add rows to it with `tunery file`."
        raise CallRefused(400, "invalid_request", message)
    response = await api.send("GET", f"{path_to(FILES, file['id'])}/content?encoding=plain")
    if not response.is_success:
        raise refusal_of(response)
    return response.content if response.content.endswith(b"\n") else response.content + b"\n"


def _saved(file: dict[str, Any], rows: int, *, is_new: bool) -> dict[str, Any]:
    return {"file": file, "rows": rows, "wanted": ROWS_MIN, "is_new": is_new}


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
