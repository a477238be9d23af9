"""PEFT in its process: names of models, and a process that is killed."""

import os
import signal
from pathlib import Path

import pytest

from schemas.training import ADAPTER_FILES
from services.engine.adapters.peft import PeftEngine, ProcessEnded, ProcessModel, name_of
from services.engine.adapters.plain_weights import PlainWeights
from services.engine.ports import Refusal, WeightFiles
from tests.unit.services.engine.adapters import tiny_models
from tests.unit.services.engine.adapters.tiny_models import ASKED, TOKENS
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.work.answers import AbandonAnswer
from tunery.work.engine import UNSUPPORTED, AnswerEnded, Question, Reply, Sampling, TextAdded

GREEDY = Sampling(temperature=0, tokens_max=TOKENS)


def said(model: ProcessModel, parts_max: int = 1_000_000) -> tuple[str, list[Reply]]:
    replies: list[Reply] = []

    def say(reply: Reply) -> bool:
        replies.append(reply)
        return len(replies) < parts_max

    model.answer(Question(tiny_models.engine_model(), tuple(ASKED), GREEDY), say)
    return "".join(reply.text for reply in replies if isinstance(reply, TextAdded)), replies


def test_a_model_has_a_name_without_dots(tmp_path: Path) -> None:
    base = tmp_path / "ab.base"
    assert name_of(WeightFiles(tmp_path, base, None, 512)) == "ab-base"
    assert name_of(WeightFiles(tmp_path, base, tmp_path / "cd.adapter", 512)) == "cd-adapter"


@pytest.mark.train
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
async def test_answers_are_those_of_generate_also_after_a_kill(tmp_path: Path) -> None:
    of_base, of_adapter = tiny_models.answers()
    blobs = MemoryBlobs()
    files = await tiny_models.uploaded(blobs)
    weights = PlainWeights(blobs, tmp_path / "engine", 4)
    engine = PeftEngine(context_tokens=256, threads=1)
    base = engine.load(await weights.fetch(tiny_models.engine_model()))
    tuned = engine.load(await weights.fetch(tiny_models.engine_model(files)))
    assert (said(base)[0], said(tuned)[0]) == (of_base, of_adapter)
    assert len(said(tuned, parts_max=2)[1]) == 2, "the client has left"
    process = engine.process_with(await weights.fetch(tiny_models.engine_model()))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    text, replies = said(tuned)
    assert text == of_adapter
    assert isinstance(replies[-1], AnswerEnded)
    tuned.close()
    assert said(base)[0] == of_base
    base.close()
    with pytest.raises(ProcessEnded):
        process.send(AbandonAnswer(0))


@pytest.mark.train
async def test_a_broken_adapter_is_refused_and_others_answer(tmp_path: Path) -> None:
    weights = PlainWeights(MemoryBlobs(), tmp_path / "engine", 4)
    engine = PeftEngine(context_tokens=256, threads=1)
    files = await weights.fetch(tiny_models.engine_model())
    base = engine.load(files)
    broken = tmp_path / "broken.adapter"
    broken.mkdir()
    (broken / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 4}')
    (broken / "adapter_model.safetensors").write_bytes(b"\x80\x04 no tensors")
    with pytest.raises(Refusal) as refused:
        engine.load(WeightFiles(files.folder, files.base, broken, 512))
    assert refused.value.code == UNSUPPORTED
    assert said(base)[0]
    base.close()


@pytest.mark.train
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
async def test_bases_f7_answers_of_a_version_end_at_its_own_tokens(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    base = tiny_models.turning(tmp_path / "base")
    version = await tiny_models.with_own_tokenizer(blobs, base)
    files = await PlainWeights(blobs, tmp_path / "engine", 4).fetch(version)
    assert files.adapter is not None
    assert {path.name for path in files.adapter.iterdir() if path.is_file()} == {*ADAPTER_FILES}
    engine = PeftEngine(context_tokens=256, threads=1)
    for own, reason in ((files.tokenizer, "stop"), (None, "length")):
        model = engine.load(WeightFiles(files.folder, files.base, None, 512, own))
        ended = said(model)[1][-1]
        assert isinstance(ended, AnswerEnded)
        assert ended.finish_reason == reason
        assert (ended.completion_tokens == TOKENS) == (own is None)
        model.close()
