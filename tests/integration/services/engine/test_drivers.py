"""All drivers in the same suite, with a tiny model and an adapter.

Behind those of vLLM and SGLang is a server of ours with their routes, which computes with PEFT.
`make test-vllm` runs the suite over vLLM itself; nothing runs it over SGLang itself.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from services.engine.adapters.peft import PeftEngine, name_of
from services.engine.ports import WeightFiles
from services.engine.settings import EngineSettings
from tests.bases import tiny_base
from tests.contract.engine_suite import (
    ANSWER_S_MAX,
    CONTEXT_TOKENS,
    EMBEDDINGS,
    POLL_S,
    TINY,
    AskedEngine,
    EngineSuite,
    asked_engine,
)
from tests.inference_server import Events, InferenceServer, Writer, serving
from tunery.work.answers import AbandonAnswer, TokensEnded, TokenWritten, WriteAnswer
from tunery.work.engine import Sampling

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]
SAMPLING = ("temperature", "top_p", "presence_penalty", "frequency_penalty")


@pytest_asyncio.fixture(scope="class", loop_scope="session")
async def asked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[AskedEngine]:
    """A gateway with the engine that the class names."""
    driver = request.cls.driver
    with contextlib.ExitStack() as stack:
        settings = EngineSettings(driver=driver, threads=1, context_tokens=CONTEXT_TOKENS)
        if driver in ("vllm", "sglang"):
            server = stack.enter_context(peft_server(driver))
            settings = settings.model_copy(update={"servers": server.url})
        async with asked_engine(settings, tmp_path_factory.mktemp("e")) as engine:
            yield engine


@contextlib.contextmanager
def peft_server(kind: Literal["vllm", "sglang"]) -> Iterator[InferenceServer]:
    """A server of the tiny base model that computes with PEFT."""
    engine = PeftEngine(context_tokens=CONTEXT_TOKENS, threads=1)
    base = tiny_base().dir
    whole = engine.load(WeightFiles(base, base, None, CONTEXT_TOKENS))
    try:
        with serving(InferenceServer(base, peft_writer(engine, base), kind)) as server:
            yield server
    finally:
        whole.close()


def peft_writer(engine: PeftEngine, base: Path) -> Writer:
    """Writes the tokens of answers with PEFT."""

    def write(adapter: Path | None, body: dict[str, Any]) -> Events:
        files = WeightFiles(base, base, adapter, CONTEXT_TOKENS)
        process = engine.process_with(files)
        sampling = Sampling(
            **{name: body[name] for name in SAMPLING},
            seed=body.get("seed"),
            top_logprobs=body.get("logprobs"),
        )
        with process.numbered() as (number, replies):
            prompt, most = tuple(body["prompt"]), body["max_tokens"]
            process.send(WriteAnswer(number, name_of(files), prompt, sampling, most))
            try:
                while isinstance(reply := replies.get(), TokenWritten):
                    yield reply
                assert isinstance(reply, TokensEnded)
                yield reply
            finally:
                process.send(AbandonAnswer(number))

    return write


def mean_state(text: str) -> torch.Tensor:
    """The mean of what the last layer of the tiny base says of each token; of length 1."""
    base = AutoModelForCausalLM.from_pretrained(tiny_base().dir, dtype=torch.float32)
    ids = AutoTokenizer.from_pretrained(tiny_base().dir)(text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        states = base(ids, output_hidden_states=True).hidden_states[-1][0]
    mean: torch.Tensor = states.mean(0)
    unit: torch.Tensor = mean / mean.norm()
    return unit


class TestLlama(EngineSuite):
    """The suite over llama.cpp in this process."""

    driver = "llama"

    async def test_a_text_becomes_the_mean_of_its_last_states(self, asked: AskedEngine) -> None:
        texts = ["Who are you?", "The lighthouse"]
        answer = await asked.ok(EMBEDDINGS, model=TINY, input=texts)
        vectors = [torch.tensor(each["embedding"]) for each in answer["data"]]
        for text, vector in zip(texts, vectors, strict=True):
            assert float(vector.norm()) == pytest.approx(1, abs=1e-4)
            assert float(vector @ mean_state(text)) > 0.999
        tuned = await asked.ok(EMBEDDINGS, model=asked.tuned, input=texts[0])
        assert float(vectors[0] @ torch.tensor(tuned["data"][0]["embedding"])) < 0.99

    async def test_a_batch_embeds_as_the_route_does(self, asked: AskedEngine) -> None:
        texts = ["Who are you?", "The lighthouse"]
        direct = (await asked.ok(EMBEDDINGS, model=asked.tuned, input=texts))["data"]
        row = {"custom_id": "a", "method": "POST", "url": EMBEDDINGS}
        content = json.dumps({**row, "body": {"model": asked.tuned, "input": texts}}).encode()
        http = asked.owner
        upload = {"file": ("rows.jsonl", content)}
        file = (await http.post("/v1/files", data={"purpose": "batch"}, files=upload)).json()
        terms = {"endpoint": EMBEDDINGS, "completion_window": "24h", "input_file_id": file["id"]}
        batch = (await http.post("/v1/batches", json=terms)).json()
        async with asyncio.timeout(ANSWER_S_MAX):
            while batch["status"] != "completed":
                await asyncio.sleep(POLL_S)
                batch = (await http.get(f"/v1/batches/{batch['id']}")).json()
        (line,) = (await http.get(f"/v1/files/{batch['output_file_id']}/content")).text.splitlines()
        answered = json.loads(line)["response"]["body"]["data"]
        assert [each["index"] for each in answered] == [0, 1]
        for row_vector, vector in zip(answered, direct, strict=True):
            assert row_vector["embedding"] == pytest.approx(vector["embedding"], abs=1e-5)

    async def test_a_text_that_is_too_long_to_embed_is_refused(self, asked: AskedEngine) -> None:
        too_long = "context_length_exceeded"
        message = await asked.refused(400, too_long, EMBEDDINGS, input="word " * 2_000)
        assert f"{CONTEXT_TOKENS} tokens" in message


class TestPeft(EngineSuite):
    """The suite over PEFT in a process beside."""

    driver = "peft"

    async def test_embeddings_are_refused(self, asked: AskedEngine) -> None:
        message = await asked.refused(400, "model_not_servable", EMBEDDINGS, input="Hello")
        assert "llama.cpp" in message


class TestVllm(EngineSuite):
    """The suite over a server with vLLM's routes."""

    driver = "vllm"


class TestSglang(EngineSuite):
    """The suite over a server with SGLang's routes."""

    driver = "sglang"
