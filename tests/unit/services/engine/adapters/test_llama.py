"""llama.cpp answers as transformers does, with the base model and with an adapter."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from services.engine.adapters.llama import FOLDER, SEEDS, LlamaEngine, LlamaModel, sampling_fields
from services.engine.adapters.tool_calls import CallForm
from services.engine.adapters.weights import ConvertedWeights, delete_unfinished
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
TAGS = CallForm("<tool_call>", "name", "arguments", "\n")
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
@pytest.mark.soak  # test_drivers asks the same of each driver, and exported files answer so, too
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
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
async def test_bases_f7_answers_of_a_version_end_at_its_own_tokens(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    base = tiny_models.turning(tmp_path / "base")
    version = await tiny_models.with_own_tokenizer(blobs, base)
    files = await ConvertedWeights(blobs, tmp_path / "engine", 4).fetch(version)
    assert files.tokenizer is not None
    for own, reason, least in ((files.tokenizer, "stop", 1), (None, "length", TOKENS)):
        model = ENGINE.load(WeightFiles(files.folder, files.base, None, 512, own))
        text, replies = said(model, GREEDY)
        assert isinstance(replies[-1], AnswerEnded)
        assert (replies[-1].finish_reason, replies[-1].completion_tokens >= least) == (reason, True)
        assert (own is None) == (replies[-1].completion_tokens == TOKENS)
        assert "<|im_" not in text
        model.close()


@pytest.mark.train
async def test_a_seed_gives_the_same_answer_again() -> None:
    model = ENGINE.load(await tiny_models.converted(MemoryBlobs()))
    first, second, other = (
        said(model, Sampling(seed=seed, tokens_max=TOKENS))[0] for seed in (1, 1, 2)
    )
    assert first == second != other
    model.close()


CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"at": {"$ref": "#/$defs/City"}},
    "required": ["at"],
    "$defs": {"City": {"enum": ["A", "B"]}},
}


def tool(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def replies_to(model: LlamaModel, sampling: Sampling = ENOUGH, **fields: Any) -> list[Reply]:
    replies: list[Reply] = []

    def say(reply: Reply) -> bool:
        replies.append(reply)
        return True

    model.answer(Question(tiny_models.engine_model(), tuple(ASKED), sampling, **fields), say)
    return replies


def by_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"schema": schema}}


def text_of(replies: list[Reply]) -> str:
    return "".join(part.text for part in replies if isinstance(part, TextAdded))


@pytest.mark.train
async def test_json_has_the_form_that_was_asked_for() -> None:
    """The weights are random: what they write is what they are held to."""
    model = ENGINE.load(await tiny_models.converted(MemoryBlobs()))
    replies = replies_to(model, response_format=by_schema(CITY))
    assert text_of(replies) in ('{"at":"A"}', '{"at":"B"}')  # U10: no white space
    link = {"format": "uri", "maxLength": 8, "type": "string", "not": {"const": "x"}}
    replies = replies_to(model, response_format=by_schema(link))
    assert len(json.loads(text_of(replies))) <= 8  # what cannot be held does not undo the rest
    for bad in ({"type": "nonsense"}, {"$ref": "#/$defs/none"}):
        (refused,) = replies_to(model, response_format=by_schema(bad))
        assert isinstance(refused, QuestionRefused)
        assert refused.code == MALFORMED
    model.close()


@pytest.mark.train
@pytest.mark.parametrize("form", [None, TAGS, CallForm("[CALLS]", "name", "arguments", " [")])
async def test_first_hour2_u4_calls_are_forced_and_held_by_a_grammar(form: CallForm | None) -> None:
    """form: how the template writes calls; None: it knows no tools, so they are described."""
    model = ENGINE.load(await tiny_models.converted(MemoryBlobs()))
    model.prompts.form = form
    tools = (tool("rain", CITY), tool("sun", {"type": "object", "properties": {}}))
    for forced in (("rain",), ("rain", "sun")):
        ended = replies_to(model, tools=tools, forced=forced)[-1]
        assert isinstance(ended, AnswerEnded)
        (call,) = ended.tool_calls
        assert call.name in forced
        assert call.name == "sun" or json.loads(call.arguments)["at"] in ("A", "B")
    replies = replies_to(model, tools=tools[:1], response_format=by_schema(CITY))
    ended = replies[-1]
    assert isinstance(ended, AnswerEnded)
    assert ended.tool_calls or json.loads(text_of(replies))
    cut = replies_to(model, Sampling(temperature=0, tokens_max=3), tools=tools, forced=("rain",))
    assert isinstance(cut[-1], AnswerEnded)
    assert (cut[-1].finish_reason, cut[-1].tool_calls) == ("length", ())
    assert text_of(cut).startswith('{"name":')
    free = replies_to(model, GREEDY, tools=tools, strict=("rain",))
    assert isinstance(free[-1], AnswerEnded)
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
