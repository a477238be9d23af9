"""All drivers in the same suite, with a tiny model and an adapter.

Behind those of vLLM and SGLang is a server of ours with their routes, which computes with PEFT.
`make test-vllm` runs the suite over vLLM itself; nothing runs it over SGLang itself.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio

from services.engine.adapters.peft import PeftEngine, name_of
from services.engine.ports import WeightFiles
from services.engine.settings import EngineSettings
from tests.bases import tiny_base
from tests.contract.engine_suite import CONTEXT_TOKENS, AskedEngine, EngineSuite, asked_engine
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


class TestLlama(EngineSuite):
    """The suite over llama.cpp in this process."""

    driver = "llama"


class TestPeft(EngineSuite):
    """The suite over PEFT in a process beside."""

    driver = "peft"


class TestVllm(EngineSuite):
    """The suite over a server with vLLM's routes."""

    driver = "vllm"


class TestSglang(EngineSuite):
    """The suite over a server with SGLang's routes."""

    driver = "sglang"
