"""Health of a deployed model by the engine's answer."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from services.gateway.deployments.routes import health_of
from tests.unit.services.gateway.chat.scripted_engine import HELLO, QUESTION, ScriptedEngine
from tunery.work.engine import BUSY, UNSUPPORTED, EngineReply, Question, QuestionRefused


class SlowEngine:
    """Implements `ChatEngine`: never answers."""

    async def ask(self, question: Question) -> AsyncGenerator[EngineReply, None]:
        await asyncio.Event().wait()
        yield HELLO[0]


@pytest.mark.parametrize(
    ("engine", "state"),
    [
        (ScriptedEngine(), "ready"),
        (ScriptedEngine([QuestionRefused(BUSY, "later")]), "busy"),
        (ScriptedEngine([QuestionRefused(UNSUPPORTED, "DoRA")]), "failed"),
        (ScriptedEngine(away=True), "unavailable"),
        (SlowEngine(), "converting"),
    ],
)
async def test_each_state(engine: ScriptedEngine | SlowEngine, state: str) -> None:
    health = await health_of(engine, QUESTION.model, probe_s=0.05)
    assert health.state == state
    assert (health.message is None) == (state == "ready")
