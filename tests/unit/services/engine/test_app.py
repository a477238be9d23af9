"""The composition root: who answers, and who counts."""

from dataclasses import replace
from pathlib import Path

from services.engine.app import build
from services.engine.counting import AnswerCounts
from services.engine.host import EngineHost
from tunery.runtime.memory_servers import memory_servers


async def test_one_host_answers_and_one_counts(tmp_path: Path) -> None:
    runtime = (await memory_servers()).runtime("engine")
    settings = runtime.settings.model_copy(update={"data_dir": tmp_path})
    answering, counting = await build(replace(runtime, settings=settings))
    assert isinstance(answering, EngineHost)
    assert isinstance(counting, AnswerCounts)
