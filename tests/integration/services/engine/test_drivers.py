"""llama.cpp and PEFT in the same suite, with a tiny model and an adapter."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from services.engine.settings import EngineSettings
from tests.contract.engine_suite import CONTEXT_TOKENS, AskedEngine, EngineSuite, asked_engine

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


@pytest_asyncio.fixture(scope="class", loop_scope="session")
async def asked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[AskedEngine]:
    """A gateway with the engine that the class names."""
    driver = request.cls.driver
    settings = EngineSettings(driver=driver, threads=1, context_tokens=CONTEXT_TOKENS)
    async with asked_engine(settings, tmp_path_factory.mktemp("e")) as engine:
        yield engine


class TestLlama(EngineSuite):
    """The suite over llama.cpp in this process."""

    driver = "llama"


class TestPeft(EngineSuite):
    """The suite over PEFT in a process beside."""

    driver = "peft"
