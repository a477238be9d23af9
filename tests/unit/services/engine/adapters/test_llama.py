"""llama.cpp answers as transformers does, with the base model and with an adapter."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from services.engine.adapters.llama import FOLDER, SEEDS, LlamaEngine, LlamaModel, sampling_fields
from services.engine.adapters.weights import delete_unfinished
from services.engine.ports import Refusal, WeightFiles
from tests.bases import tiny_base
from tests.unit.services.engine.adapters import tiny_models
from tests.unit.services.engine.adapters.tiny_models import ASKED, TOKENS
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.work.engine import (
    MALFORMED,
    TOO_LONG,
    UNSUPPORTED,
    AnswerEnded,
    Question,
    QuestionRefused,
    Reply,
    Sampling,
    TextAdded,
)

ENOUGH = Sampling(temperature=0, tokens_max=120)
GREEDY = Sampling(temperature=0, tokens_max=TOKENS)
ENGINE = LlamaEngine(answers_max=2, context_tokens=256, threads=1)


def said(
    model: LlamaModel,
    sampling: Sampling,
    content: str = ASKED[0]["content"],
    parts_max: int = 1_000_000,
) -> tuple[str, list[Reply]]:
    replies: list[Reply] = []

    def say(reply: Reply) -> bool:
        replies.append(reply)
        return len(replies) < parts_max

    messages = ({"role": "user", "content": content},)
    model.answer(Question(tiny_models.engine_model(), messages, sampling), say)
    text = "".join(reply.text for reply in replies if isinstance(reply, TextAdded))
    return text, replies


@pytest.mark.train
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
async def test_greedy_answers_are_those_of_transformers_for_base_and_adapter() -> None:
    of_base, of_adapter = tiny_models.answers()
    blobs = MemoryBlobs()
    files = await tiny_models.uploaded(blobs)
    base = ENGINE.load(await tiny_models.converted(blobs))
    tuned = ENGINE.load(await tiny_models.converted(blobs, files))
    assert said(base, GREEDY)[0] == of_base
    assert said(tuned, GREEDY)[0] == of_adapter != of_base
    base.close()
    assert said(tuned, GREEDY)[0] == of_adapter
    tuned.close()


@pytest.mark.train
async def test_answers_end_as_they_are_asked_to() -> None:
    model = ENGINE.load(await tiny_models.converted(MemoryBlobs()))
    text, replies = said(model, GREEDY)
    ended = replies[-1]
    assert isinstance(ended, AnswerEnded)
    assert (ended.finish_reason, ended.completion_tokens) == ("length", TOKENS)
    stopped, replies = said(model, Sampling(temperature=0, tokens_max=TOKENS, stop=(text[8:12],)))
    assert isinstance(replies[-1], AnswerEnded)
    assert replies[-1].finish_reason == "stop"
    assert stopped == text[: text.index(text[8:12])]
    _, replies = said(model, GREEDY, parts_max=2)
    assert len(replies) == 2
    _, replies = said(model, GREEDY, content="who " * 400)
    (refused,) = replies
    assert isinstance(refused, QuestionRefused)
    assert refused.code == TOO_LONG
    assert "maximum context length is 256 tokens" in refused.message
    _, replies = said(model, Sampling(temperature=0))
    assert isinstance(replies[-1], AnswerEnded)
    assert replies[-1].finish_reason == "length"
    model.close()


@pytest.mark.train
async def test_a_seed_gives_the_same_answer_again() -> None:
    model = ENGINE.load(await tiny_models.converted(MemoryBlobs()))
    first, second, other = (
        said(model, Sampling(seed=seed, tokens_max=TOKENS))[0] for seed in (1, 1, 2)
    )
    assert first == second != other
    model.close()


@pytest.mark.train
async def test_json_has_the_form_that_was_asked_for() -> None:
    model = ENGINE.load(await tiny_models.converted(MemoryBlobs()))

    def asked(schema: dict[str, Any]) -> list[Reply]:
        replies: list[Reply] = []
        wanted = {"type": "json_schema", "json_schema": {"schema": schema}}
        question = Question(tiny_models.engine_model(), tuple(ASKED), ENOUGH, wanted)

        def say(reply: Reply) -> bool:
            replies.append(reply)
            return True

        model.answer(question, say)
        return replies

    *parts, ended = asked(
        {"enum": ["a", "b"]}
    )  # an object may have spaces for ever: the weights are random
    assert isinstance(ended, AnswerEnded)
    text = "".join(part.text for part in parts if isinstance(part, TextAdded))
    assert json.loads(text) in ("a", "b")
    (refused,) = asked({"type": "nonsense"})
    assert isinstance(refused, QuestionRefused)
    assert refused.code == MALFORMED
    model.close()


@pytest.mark.train
async def test_each_token_has_its_probability() -> None:
    model = ENGINE.load(await tiny_models.converted(MemoryBlobs()))
    for count in (0, 2):
        text, replies = said(model, Sampling(temperature=0, tokens_max=4, top_logprobs=count))
        tokens = [
            token for part in replies if isinstance(part, TextAdded) for token in part.logprobs
        ]
        assert len(tokens) == 4
        assert "".join(token["token"] for token in tokens) == text
        assert all(token["logprob"] < 0 for token in tokens)
        assert {len(token["top_logprobs"]) for token in tokens} == {count}
    model.close()


@pytest.mark.train
async def test_a_file_that_is_no_model_is_refused() -> None:
    files = WeightFiles(tiny_base().dir, tiny_models.folder() / "nothing.gguf", None, 512)
    with pytest.raises(Refusal) as refused:
        ENGINE.load(files)
    assert refused.value.code == UNSUPPORTED


@pytest.mark.train
async def test_a_temporary_folder_may_have_a_name_too_long_for_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / ("long" * 30)).mkdir()
    files = await tiny_models.converted(MemoryBlobs())
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    model = ENGINE.load(files)
    assert said(model, Sampling(temperature=0, tokens_max=1))[0]
    model.close()
    assert not list(folder.iterdir())


def test_only_what_was_asked_for_chooses_tokens() -> None:
    fields = sampling_fields(Sampling(seed=-1))
    assert (fields["top_k"], fields["min_p"], fields["repeat_penalty"]) == (0, 0.0, 1.0)
    assert (fields["max_tokens"], fields["seed"]) == (-1, SEEDS - 1)
    assert "seed" not in sampling_fields(Sampling())


def test_folders_of_killed_engines_are_deleted(tmp_path: Path) -> None:
    killed = tmp_path / f"{FOLDER}{2**22 + 1}-left"
    running = tmp_path / f"{FOLDER}{os.getpid()}-used"
    for folder in (killed, running):
        folder.mkdir()
        (folder / "llama.sock").touch()
    delete_unfinished(tmp_path, FOLDER)
    assert [path.name for path in tmp_path.iterdir()] == [running.name]
