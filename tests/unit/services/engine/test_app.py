"""The composition root: who answers, and who counts."""

from dataclasses import replace
from pathlib import Path

import pytest

from services.engine.adapters.llama import LlamaEngine
from services.engine.adapters.peft import PeftEngine
from services.engine.app import build, driver_of
from services.engine.counting import AnswerCounts
from services.engine.host import EngineHost
from services.engine.reconciling import EngineReconciliation
from services.engine.settings import EngineSettings
from tunery.platform.memory_servers import memory_servers
from tunery.runtime.blobs.memory import MemoryBlobs


async def test_one_host_answers_and_one_counts(tmp_path: Path) -> None:
    runtime = (await memory_servers()).runtime("engine")
    settings = runtime.settings.model_copy(update={"data_dir": tmp_path})
    answering, counting = await build(replace(runtime, settings=settings))
    assert isinstance(answering, EngineHost)
    assert isinstance(counting, AnswerCounts)


def test_the_settings_choose_what_answers(tmp_path: Path) -> None:
    _, usual = driver_of(EngineSettings(), MemoryBlobs(), tmp_path)
    _, reference = driver_of(EngineSettings(driver="peft"), MemoryBlobs(), tmp_path)
    assert isinstance(usual, LlamaEngine)
    assert isinstance(reference, PeftEngine)


async def test_servers_are_compared_with_what_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = (await memory_servers()).runtime("engine")
    settings = runtime.settings.model_copy(update={"data_dir": tmp_path})
    for driver in ("vllm", "sglang"):
        monkeypatch.setenv("TUNERY_ENGINE_DRIVER", driver)
        hosts = await build(replace(runtime, settings=settings))
        assert isinstance(hosts[-1], EngineReconciliation)
