"""Models at servers: placed before each answer, loaded again, unloaded, and told as OpenAI does."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from services.engine.adapters.inference_server import (
    ServerAway,
    ServerRefused,
    SglangServer,
    VllmServer,
)
from services.engine.adapters.served import (
    RemoteModel,
    ServedEngine,
    check_weights,
    name_of,
    refusal_of,
    why_of,
)
from services.engine.adapters.server_folders import ServerFolders
from services.engine.ports import Refusal, WeightFiles
from tests.inference_server import Events, InferenceServer, serving
from tests.unit.services.ingest.base import TEMPLATE, make_base
from tunery.data.tokens.base_variants import write_tokenizer
from tunery.platform.blobs.base_files import hash_base
from tunery.work.answers import TokensEnded, TokenWritten
from tunery.work.engine import (
    BUSY,
    FAILED,
    MALFORMED,
    STALE_BASE,
    TOO_LONG,
    UNSUPPORTED,
    AnswerEnded,
    Asker,
    EngineModel,
    Question,
    QuestionRefused,
    Reply,
    Sampling,
    TextAdded,
)
from tunery.work.own_chat import OwnChat

CLIENTS = {"vllm": VllmServer, "sglang": SglangServer}
MODEL = EngineModel("tiny", "/bases/tiny", "ab" * 32, 512)
GREEDY = Sampling(temperature=0, tokens_max=8)


def letters(adapter: Path | None, body: dict[str, Any]) -> Events:
    """`abc`, or `ABC` with an adapter, and the end."""
    first = 35 if adapter is not None else 67  # of the small tokenizer's alphabet
    for index in range(3):
        likely = ((first + index, -0.25), (first, -2.0)) if "logprobs" in body else ()
        yield TokenWritten(0, first + index, -0.25, likely)
    yield TokensEnded(0, "stop", 4)


@dataclass
class Serving:
    """An engine with one server, and the files of a base model and an adapter."""

    server: InferenceServer
    engine: ServedEngine
    base: WeightFiles
    tuned: WeightFiles


def write_adapter(folder: Path, rank: int = 4, name: str = "q_proj.lora_A.weight") -> Path:
    folder.mkdir(parents=True)
    save_file({name: np.zeros((rank, 2), np.float32)}, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(f'{{"r": {rank}}}')
    return folder


def engine_of(
    server: InferenceServer, own: Path, names: dict[str, str] | None = None
) -> ServedEngine:
    client = CLIENTS[server.kind](server.url, server.key)
    return ServedEngine([client], ServerFolders(own, names or {}), context_tokens=64)


@contextmanager
def served(folder: Path, kind: Any = "vllm", **options: Any) -> Iterator[Serving]:
    source = make_base(folder / "base")
    (source / "config.json").write_text("{}")
    own = folder / "engine"
    base = WeightFiles(source, own / f"{hash_base(source)}.base", None, 512)
    adapter = write_adapter(own / f"{'ab' * 32}.adapter")
    tuned = WeightFiles(source, base.base, adapter, 512)
    with serving(InferenceServer(source, letters, kind, **options)) as server:
        yield Serving(server, engine_of(server, own), base, tuned)


def said(
    model: RemoteModel, sampling: Sampling = GREEDY, parts_max: int = 99, **fields: Any
) -> tuple[str, list[Reply]]:
    replies: list[Reply] = []

    def say(reply: Reply) -> bool:
        replies.append(reply)
        return len(replies) < parts_max

    model.answer(Question(MODEL, ({"role": "user", "content": "light"},), sampling, **fields), say)
    return "".join(reply.text for reply in replies if isinstance(reply, TextAdded)), replies


@pytest.mark.parametrize("kind", CLIENTS)
def test_tokens_go_out_and_come_back(tmp_path: Path, kind: str) -> None:
    with served(tmp_path, kind, key="k") as at:
        base, tuned = at.engine.load(at.base), at.engine.load(at.tuned)
        assert (said(base)[0], said(tuned)[0]) == ("abc", "ABC")
        ended = said(base)[1][-1]
        body = at.server.asked("/v1/completions")[-1]
        assert ended == AnswerEnded("stop", len(body["prompt"]), 4, cached_tokens=1)
        assert all(isinstance(token, int) for token in body["prompt"])
        assert (body["max_tokens"], body["top_k"], body["repetition_penalty"]) == (8, -1, 1.0)
        ((name, folder),) = at.server.adapters.items()
        assert (name, folder) == (f"tunery-{'ab' * 16}", str(at.tuned.adapter))


@pytest.mark.parametrize("kind", CLIENTS)
def test_bases_f7_a_version_with_a_tokenizer_of_its_own_names_what_ends_answers(
    tmp_path: Path, kind: str
) -> None:
    with served(tmp_path, kind) as at:
        chat = OwnChat(TEMPLATE.replace("assistant\n", "assistant:"), ("<|im_start|>",))
        own = write_tokenizer(at.base.folder, chat, tmp_path / "own")
        said(at.engine.load(replace(at.tuned, tokenizer=own)))
        body = at.server.asked("/v1/completions")[-1]
        assert body["stop_token_ids"] == [1, 2]
        said(at.engine.load(at.tuned))
        plain = at.server.asked("/v1/completions")[-1]
        assert "stop_token_ids" not in plain
        assert plain["prompt"] != body["prompt"]


@pytest.mark.parametrize(("cached", "counted"), [(10**9, None), (-5, 0)])
def test_usage_that_a_server_claims_costs_nobody_anything(
    tmp_path: Path, cached: int, counted: int | None
) -> None:
    claims = {
        "prompt_tokens": 10**9,
        "completion_tokens": 10**9,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    with served(tmp_path, usage=claims) as at:
        ended = said(at.engine.load(at.base))[1][-1]
        read = len(at.server.asked("/v1/completions")[-1]["prompt"])
    assert ended == AnswerEnded("stop", read, 4, read if counted is None else counted)


def test_tokens_above_those_that_were_asked_for_are_neither_sent_nor_counted(
    tmp_path: Path,
) -> None:
    with served(tmp_path) as at:
        model = at.engine.load(at.base)
        text, replies = said(model, Sampling(temperature=0, tokens_max=2))
        read = len(at.server.asked("/v1/completions")[-1]["prompt"])
    assert (text, replies[-1]) == ("ab", AnswerEnded("length", read, 2))


@pytest.mark.parametrize("kind", CLIENTS)
def test_probabilities_have_openais_format(tmp_path: Path, kind: str) -> None:
    with served(tmp_path, kind) as at:
        for count in (0, 2):
            sampling = Sampling(temperature=0, top_logprobs=count)
            _, replies = said(at.engine.load(at.base), sampling)
            tokens = [token for reply in replies[:-1] for token in reply.logprobs]  # type: ignore[union-attr]  # only the last has none
            assert [token["token"] for token in tokens] == ["a", "b", "c"]
            assert {len(token["top_logprobs"]) for token in tokens[1:]} == {count}
        assert [top["token"] for top in tokens[1]["top_logprobs"]] == ["b", "a"]


@pytest.mark.parametrize("kind", CLIENTS)
def test_forms_of_answers_are_the_work_of_the_server(tmp_path: Path, kind: str) -> None:
    with served(tmp_path, kind) as at:
        model = at.engine.load(at.base)
        schema = {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}
        for response_format in ({"type": "json_object"}, schema):
            assert said(model, response_format=response_format)[0] == "abc"
            sent = at.server.asked("/v1/completions")[-1]["response_format"]
            assert sent["type"] == response_format["type"]
        assert sent["json_schema"]["schema"] == {"type": "object"}


def test_an_answer_stops_here_and_at_the_server(tmp_path: Path) -> None:
    with served(tmp_path) as at:
        model = at.engine.load(at.base)
        text, replies = said(model, Sampling(stop=("c",)))
        assert (text, replies[-1]) == ("ab", AnswerEnded("stop", 12, 3))
        assert len(said(model, parts_max=1)[1]) == 1, "the client has left"
        assert "stop" not in at.server.asked("/v1/completions")[0]


def test_a_server_that_started_again_gets_its_adapters(tmp_path: Path) -> None:
    with served(tmp_path) as at:
        tuned = at.engine.load(at.tuned)
        at.server.adapters.clear()
        at.engine.reconcile()
        assert len(at.server.adapters) == 1
        at.server.adapters.clear()
        assert said(tuned)[0] == "ABC", "before the next round"


def test_unwanted_adapters_are_unloaded_and_others_stay(tmp_path: Path) -> None:
    with served(tmp_path) as at:
        left = write_adapter(tmp_path / "engine" / "left.adapter")
        theirs = write_adapter(tmp_path / "theirs" / "x.adapter")
        at.server.adapters |= {"tunery-left": str(left), "tunery-x": str(theirs), "own": str(left)}
        first, second = at.engine.load(at.tuned), at.engine.load(at.tuned)
        at.engine.reconcile()
        ours = name_of(at.tuned)
        assert at.server.adapters.keys() == {"tunery-x", "own", ours}
        first.close()
        assert ours in at.server.adapters
        second.close()
        assert at.server.adapters.keys() == {"tunery-x", "own"}


def test_while_a_server_is_away_it_is_asked_again(tmp_path: Path) -> None:
    with served(tmp_path) as at:
        model, port = at.engine.load(at.tuned), int(at.server.url.rpartition(":")[2])
    refused = said(model)[1][0]
    assert isinstance(refused, QuestionRefused)
    assert refused.code == FAILED
    at.engine.reconcile()
    with pytest.raises(Refusal) as away:
        at.engine.load(at.base)
    assert away.value.code == FAILED
    with serving(at.server, port):
        assert said(model)[0] == "ABC"


def test_only_the_registered_base_model_answers(tmp_path: Path) -> None:
    with served(tmp_path) as at:
        model = at.engine.load(at.base)
        other = make_base(tmp_path / "other")
        (other / "config.json").write_text('{"other": 1}')
        at.server.root = str(other)
        refused = said(model)[1][0]
        assert isinstance(refused, QuestionRefused)
        assert refused.code == UNSUPPORTED
        at.server.root = None
        (at.base.folder / "config.json").write_text('{"changed": true}')
        refused = said(model)[1][0]
        assert isinstance(refused, QuestionRefused)
        assert refused.code == STALE_BASE


def test_an_adapter_that_a_server_refuses_is_not_servable(tmp_path: Path) -> None:
    with served(tmp_path) as at:
        wide = write_adapter(tmp_path / "engine" / "wide.adapter", rank=64)
        with pytest.raises(Refusal) as refused:
            at.engine.load(WeightFiles(at.base.folder, at.base.base, wide, 512))
        assert refused.value.code == UNSUPPORTED
        at.engine.reconcile()
        assert len(at.server.asked("/v1/load_lora_adapter")) == 1, "it is no longer wanted"


def test_weights_that_are_none_never_reach_a_server(tmp_path: Path) -> None:
    broken = write_adapter(tmp_path / "broken.adapter")
    (broken / "adapter_model.safetensors").write_bytes(b"\x80\x04 no tensors")
    for folder in (broken, write_adapter(tmp_path / "whole.adapter", name="lm_head.weight")):
        with pytest.raises(Refusal) as refused:
            check_weights(folder)
        assert refused.value.code == UNSUPPORTED


def test_a_question_must_fit_and_the_server_may_refuse_it(tmp_path: Path) -> None:
    with served(tmp_path) as at:
        model = at.engine.load(at.base)
        refused = said(model, prompt="light " * 200)[1][0]
        assert isinstance(refused, QuestionRefused)
        assert refused.code == TOO_LONG
        assert "64 tokens" in refused.message
        said(model, Sampling())
        assert at.server.asked("/v1/completions")[-1]["max_tokens"] == 64 - 12
        at.server.context_length = None
        at.server.writer = lambda *_: iter([TokensEnded(0, "abort", 0)])
        refused = said(model)[1][-1]
        assert isinstance(refused, QuestionRefused)
        assert refused.code == FAILED


def test_tenants_share_no_cache_of_prompts(tmp_path: Path) -> None:
    with served(tmp_path) as at:
        model = at.engine.load(at.base)
        for tenant in ("a", "a", "b"):
            said(model, asker=Asker(tenant, "key", "tiny"))
        first, again, other = (body["cache_salt"] for body in at.server.asked("/v1/completions"))
        assert first == again != other
        assert first != "a"


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, MALFORMED), (422, MALFORMED), (429, BUSY), (503, BUSY), (404, FAILED), (500, FAILED)],
)
def test_a_refusal_of_a_server_has_a_code(status: int, code: str) -> None:
    assert refusal_of(ServerRefused(status, "no such schema")).code == code


def test_what_went_wrong_is_logged_without_the_question(caplog: pytest.LogCaptureFixture) -> None:
    refusal_of(ServerRefused(500, "who are you?"))
    assert "who are you?" not in str([record.__dict__ for record in caplog.records])
    assert "TUNERY_ENGINE_SERVER_KEY" in why_of(ServerRefused(401, "Unauthorized"))
    assert why_of(ServerAway("refused")) == "refused"
