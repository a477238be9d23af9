"""Models that stay in memory."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from services.engine import loaded_models
from services.engine.loaded_models import LoadedModels
from services.engine.ports import Refusal
from tests.unit.services.engine.memory_engine import BROKEN, MemoryEngine, model
from tunery.work.engine import BUSY, FAILED


async def use(models: LoadedModels, *names: str) -> None:
    for name in names:
        async with models.borrow(model(name), "acme"):
            pass


async def test_a_model_is_loaded_once_and_the_oldest_one_makes_room() -> None:
    engine = MemoryEngine()
    models = LoadedModels(engine, engine, models_max=2, answers_max=1)
    await use(models, "a", "b", "a", "c", "a", "b")
    assert [name for name, _ in engine.loaded] == ["a", "b", "c", "b"]
    await models.close()
    assert all(loaded.closed for _, loaded in engine.loaded)


async def test_questions_that_come_together_load_a_model_once() -> None:
    engine = MemoryEngine()
    models = LoadedModels(engine, engine, models_max=2, answers_max=1)
    await asyncio.gather(*(use(models, "a") for _ in range(5)))
    assert [name for name, _ in engine.loaded] == ["a"]


async def test_a_model_that_answers_is_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_models, "WAIT_MS_MAX", 20)
    engine = MemoryEngine()
    models = LoadedModels(engine, engine, models_max=1, answers_max=1)
    async with models.borrow(model("a"), "acme"):
        with pytest.raises(Refusal) as refused:
            await use(models, "b")
    assert refused.value.code == BUSY
    assert not engine.loaded[0][1].closed


async def test_a_question_waits_until_a_place_is_free() -> None:
    engine = MemoryEngine()
    models = LoadedModels(engine, engine, models_max=1, answers_max=1)
    async with AsyncExitStack() as held:
        await held.enter_async_context(models.borrow(model("a"), "acme"))
        waiting = asyncio.create_task(use(models, "b"))
        await asyncio.sleep(0)
        assert not waiting.done()
    await waiting
    assert [name for name, _ in engine.loaded] == ["a", "b"]


async def test_a_model_that_cannot_be_loaded_is_tried_again() -> None:
    engine = MemoryEngine()
    models = LoadedModels(engine, engine, models_max=1, answers_max=1)
    for _ in range(2):
        with pytest.raises(Refusal) as refused:
            await use(models, BROKEN)
        assert refused.value.code == FAILED
    await use(models, "a")
    assert [name for name, _ in engine.loaded] == ["a"]
