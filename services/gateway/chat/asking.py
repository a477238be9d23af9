"""Asks the model that a request names, for its tenant and key; ids of answers."""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace
from starlette.requests import Request

from services.gateway.chat.answering import Parts, answer, questions
from services.gateway.chat.domain.bodies import ignored
from services.gateway.chat.domain.responses import AnswerIdentity
from services.gateway.chat.models import find_model
from services.gateway.chat.spending import refuse_above_budget
from services.gateway.web.deps import Deps, Principal
from services.gateway.web.domain.bodies import Body
from services.gateway.web.domain.errors import invalid
from tunery.work.engine import Asker, EngineModel, Question

FINGERPRINT_DIGITS: Final = 10
IGNORED: Final = "x-tunery-ignored"
STRICT: Final = "x-tunery-strict"


def name_ignored(request: Request, body: Body) -> None:
    """Name the fields that have no effect in a header of the response.

    Raises ApiError 400 where the request has the header `x-tunery-strict: true`.
    """
    fields = ignored(body)
    if not fields:
        return
    if request.headers.get(STRICT, "").lower() == "true":
        raise invalid("has no effect here; leave it out, or leave out x-tunery-strict", fields[0])
    request.state.notes = {IGNORED: ", ".join(fields)}


async def ask(
    deps: Deps,
    caller: Principal,
    name: str,
    user: str | None,
    question_of: Callable[[EngineModel], Question],
    *,
    prefix: str,
    count: int = 1,
    prompts: Sequence[str] = (),
) -> tuple[AnswerIdentity, Parts]:
    """Ask the model of that name for `count` answers; `prefix` is that of their id.

    user: whom the caller asks for. prompts: each in the place of the question's own.

    Raises ApiError where the model, or the question to it, is refused, or a budget is reached.
    """
    book = await refuse_above_budget(deps, caller)
    served = await find_model(deps, caller, name, user)
    name, model = served.name, served.model
    asked = question_of(model)
    # Without a limit a text under a schema may continue until the context is full.
    settings = deps.settings
    tokens = asked.sampling.tokens_max or settings.answer_tokens
    sampling = replace(asked.sampling, tokens_max=min(tokens, settings.answer_tokens_max))
    question = replace(
        asked,
        sampling=sampling,
        asker=asker(caller, model, name),
        in_batch=caller.in_batch,
    )
    identity = AnswerIdentity(
        id=deps.fresh(prefix),
        created=deps.clock.now_ms() // 1_000,
        model=name,
        system_fingerprint=f"fp_{model.base_sha256[:FINGERPRINT_DIGITS]}",
        book=book,
    )
    prompted = [replace(question, prompt=prompt) for prompt in prompts] or [question]
    numbered = [each for question in prompted for each in questions(question, count)]
    return identity, answer(served.engine, numbered)


def asker(caller: Principal, model: EngineModel, name: str) -> Asker:
    """Return who tokens are counted for; a base model counts by its id, not by its alias."""
    return Asker(caller.tenant, caller.key_id, name if model.adapter else model.base_id)
