"""Health of a deployed version: asks the engine for one token, which is not billed."""

import asyncio
from contextlib import aclosing
from typing import Final

from services.gateway.deployments.domain.responses import HealthResponse
from services.gateway.ports import ChatEngine
from services.gateway.web.domain.errors import ApiError
from tunery.work.engine import BUSY, TENANT_BUSY, EngineModel, Question, QuestionRefused, Sampling

PROBE_S: Final = 2.0  # longer than a token of a small model on one busy core
CONVERTING: Final = "Its files are being converted or loaded; this goes on. Ask again shortly."


async def health_of(
    engine: ChatEngine, model: EngineModel, probe_s: float = PROBE_S
) -> HealthResponse:
    """Probe a model with a one-token question. A model that is not loaded starts to load."""
    question = Question(model, (), Sampling(temperature=0, tokens_max=1), prompt="1")
    try:
        async with asyncio.timeout(probe_s), aclosing(engine.ask(question)) as replies:
            reply = await anext(replies)
    except TimeoutError:
        return HealthResponse(state="converting", message=CONVERTING)
    except ApiError as error:
        return HealthResponse(state="unavailable", message=error.message)
    if isinstance(reply, QuestionRefused):
        busy = reply.code in (BUSY, TENANT_BUSY)
        return HealthResponse(state="busy" if busy else "failed", message=reply.message)
    return HealthResponse(state="ready")
