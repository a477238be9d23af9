"""The suite of engines over a real vLLM server on a CPU."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio
from pydantic import SecretStr

from services.engine.settings import EngineSettings
from tests.bases import Base, wide_heads
from tests.contract.engine_suite import (
    CHAT,
    CONTEXT_TOKENS,
    UNAVAILABLE,
    AskedEngine,
    EngineSuite,
    asked_engine,
)
from tests.vllm.__main__ import vllm_python

pytestmark = [
    pytest.mark.train,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]
KEY: Final = "a key of the suite"
START_S_MAX: Final = 400
STOP_S_MAX: Final = 30
PASSED_ON: Final = ("PATH", "HOME", "LANG", "TMPDIR")
OPTIONS: Final = (
    *("--dtype", "float32", "--load-format", "safetensors", "--max-model-len", "512"),
    *("--enforce-eager", "--enable-prompt-tokens-details", "--max-num-seqs", "8"),
    *("--enable-lora", "--max-loras", "2", "--max-lora-rank", "16", "--host", "127.0.0.1"),
)
ENVIRONMENT: Final = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
    "VLLM_API_KEY": KEY,
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


class Vllm:
    """A vLLM server that can be killed and started again on its port."""

    def __init__(self, base: Base, log: Path) -> None:
        self.base, self._log = base, log
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers."""
        module = ("-m", "vllm.entrypoints.openai.api_server")
        options = ("--model", str(self.base.dir), "--port", str(self._port), *OPTIONS)
        own = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(vllm_python()), *module, *options],
                env={**own, **ENVIRONMENT},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S_MAX
        while not self._answers():
            tail = self._log.read_text(errors="replace")[-3_000:]
            assert self._process.poll() is None, f"vLLM has ended: {tail}"
            assert time.monotonic() < deadline, f"vLLM does not answer: {tail}"
            time.sleep(1)

    def kill(self) -> None:
        """End it with its children, at once."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_S_MAX)
            self._process = None

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    """A running server of a tiny base model."""
    folder = tmp_path_factory.mktemp("vllm")
    server = Vllm(wide_heads(folder / "base"), folder / "vllm.log")
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest_asyncio.fixture(scope="class", loop_scope="session")
async def asked(vllm: Vllm, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AskedEngine]:
    """A gateway with an engine that asks the server."""
    settings = EngineSettings(
        driver="vllm",
        context_tokens=CONTEXT_TOKENS,
        servers=vllm.url,
        server_key=SecretStr(KEY),
    )
    async with asked_engine(settings, tmp_path_factory.mktemp("e"), vllm.base) as engine:
        yield engine


class TestVllm(EngineSuite):
    """The suite, and what only vLLM can show."""

    async def test_an_answer_is_json_of_a_schema(self, asked: AskedEngine) -> None:
        schema = {
            "type": "object",
            "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
            "required": ["n"],
            "additionalProperties": False,
        }
        how = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
        answer = await asked.ok(response_format=how, max_tokens=64)
        (choice,) = answer["choices"]
        assert choice["message"]["content"].startswith("{")

    async def test_prompts_of_one_tenant_are_cached_for_it_alone(self, asked: AskedEngine) -> None:
        question = [{"role": "user", "content": "who are you? " * 30}]
        body: dict[str, Any] = {"messages": question, "max_tokens": 1, "temperature": 0}
        cached = []
        for client in (asked.owner, asked.owner, asked.other):
            answer = await client.post(CHAT, json={"model": "tiny", **body})
            usage = answer.json()["usage"]
            cached.append(usage["prompt_tokens_details"]["cached_tokens"])
        assert cached[0] == cached[2] == 0 < cached[1]

    async def test_a_killed_server_is_away_and_comes_back_with_its_adapters(
        self, asked: AskedEngine, vllm: Vllm
    ) -> None:
        before = await asked.ok(model=asked.tuned)
        vllm.kill()
        answer = await asked.post(model=asked.tuned)
        assert answer.status_code == UNAVAILABLE, answer.text
        assert int(answer.headers["retry-after"]) > 0
        vllm.start()
        again = await asked.ok(model=asked.tuned)
        assert again["choices"] == before["choices"]
