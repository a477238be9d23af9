"""Metrics of a question, however it ends."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing

import pytest
from msgspec.structs import replace

from schemas.deployments import ArmTraffic, Deployment
from services.gateway.chat.observed import ObservedEngine, Shadow
from services.gateway.web.domain.errors import ApiError
from tests.unit.services.gateway.chat.scripted_engine import HELLO, QUESTION, ScriptedEngine
from tunery.runtime.clock import SystemClock
from tunery.work.engine import FAILED, TOO_LONG, Asker, EngineReply, QuestionRefused, TextAdded

ASKED = replace(QUESTION, asker=Asker("acme", "key_1", "a"))


class KeptTraffic:
    """Implements `Traffic`: keeps what it is told."""

    name = "kept traffic"

    def __init__(self) -> None:
        self.noted: list[tuple[ArmTraffic, int | None]] = []
        self.aside: list[Callable[[], Awaitable[None]]] = []

    def note(
        self, tenant: str, deployment: Deployment, answered: ArmTraffic, bucket: int | None
    ) -> None:
        self.noted.append((replace(answered, answer_ms=0), bucket))

    def ask_aside(self, tenant: str, ask: Callable[[], Awaitable[None]]) -> bool:
        self.aside.append(ask)
        return True

    async def run(self) -> None: ...

    async def ready(self) -> None: ...


def observed(
    engine: ScriptedEngine, traffic: KeptTraffic, shadow: Shadow | None = None
) -> ObservedEngine:
    deployment = Deployment(series="s", stage="production", model_id="a")
    return ObservedEngine(engine, traffic, SystemClock(), "acme", deployment, "first", 17, shadow)


@pytest.mark.parametrize(
    ("replies", "noted"),
    [
        (HELLO, [(1, 0, 17)]),
        ((QuestionRefused(FAILED, "broken"),), [(0, 1, None)]),
        ((TextAdded("Hel"), QuestionRefused(FAILED, "broken")), [(0, 1, None)]),
        ((QuestionRefused(TOO_LONG, "too long"),), []),
    ],
)
async def test_an_answer_a_failure_and_the_askers_own_mistake(
    replies: tuple[EngineReply, ...], noted: list[tuple[int, int, int | None]]
) -> None:
    traffic = KeptTraffic()
    engine = observed(ScriptedEngine(replies), traffic)
    assert [reply async for reply in engine.ask(ASKED)] == list(replies)
    assert [(arm.answers, arm.failures, bucket) for arm, bucket in traffic.noted] == noted


async def test_an_engine_that_is_away_is_a_failure() -> None:
    traffic = KeptTraffic()
    with pytest.raises(ApiError):
        await anext(observed(ScriptedEngine(away=True), traffic).ask(ASKED))
    assert [arm.failures for arm, _ in traffic.noted] == [1]


async def test_a_client_that_leaves_has_seen_an_answer() -> None:
    traffic = KeptTraffic()
    async with aclosing(observed(ScriptedEngine(), traffic).ask(ASKED)) as replies:
        await anext(replies)
    assert [(arm.answers, bucket) for arm, bucket in traffic.noted] == [(1, 17)]


@pytest.mark.parametrize("away", [False, True])
async def test_a_shadow_is_asked_the_same_once_and_sees_no_caller(away: bool) -> None:
    traffic, engine = KeptTraffic(), ScriptedEngine()
    shadow = Shadow("b", replace(QUESTION.model, base_id="other"))
    asker = ASKED.asker
    assert asker is not None
    for first in (True, False):  # of two answers to one question
        question = replace(ASKED, asker=replace(asker, first=first))
        assert [reply async for reply in observed(engine, traffic, shadow).ask(question)]
    (ask,) = traffic.aside
    engine.away = away
    await ask()
    asked = engine.asked[-1]
    assert asked.messages == QUESTION.messages
    assert asked.asker == replace(asker, model="b")
    arm, bucket = traffic.noted[-1]
    assert (arm.model_id, arm.role, arm.failures, bucket) == ("b", "shadow", int(away), None)
