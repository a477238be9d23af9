"""One stack for all tests of this folder, which neither configure it nor leave it broken.

A worker starts it for the first of them and stops it after the last. Its services and its node send
traces, and the node has a data directory of its own, without a key store. Its scheduler does not
wait for ten minutes before it stops a lease for an earlier lane.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from tests.e2e.outages import SharedStack, cancel_jobs
from tests.e2e.shared import hasty_scheduler
from tests.e2e.shared.guests import Guest, new_guest
from tests.e2e.stories import AGENT_A
from tests.otlp import SpanReceiver, receiving_spans
from tunery.local.stack import SERVICES, ServiceSpec
from tunery.runtime.telemetry.traces import ENDPOINTS


@pytest.fixture(scope="package")
def spans() -> Iterator[SpanReceiver]:
    """Receiver of the traces of the shared stack."""
    with receiving_spans() as receiver:
        yield receiver


@pytest.fixture(scope="package")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of the shared stack's only node."""
    return tmp_path_factory.mktemp("node")


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def shared_stack(spans: SpanReceiver, node_folder: Path) -> AsyncIterator[SharedStack]:
    traced = {ENDPOINTS[0]: spans.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "500"}
    own = {**AGENT_A.env, **traced, "TUNERY_DATA_DIR": str(node_folder)}
    agent = replace(AGENT_A, env=own)
    scheduler = ServiceSpec("scheduler", module=hasty_scheduler.__name__, env=traced)
    shared = SharedStack(None, (agent, scheduler), **dict.fromkeys(SERVICES, traced))
    yield shared
    await shared.close()


@pytest_asyncio.fixture(loop_scope="session")
async def home(shared_stack: SharedStack) -> AsyncIterator[Guest]:
    """The shared stack, with a tenant for this test alone."""
    async with new_guest(await shared_stack.ready()) as guest:
        yield guest
        await cancel_jobs(guest)  # which would keep the only node from the next test


@pytest_asyncio.fixture(loop_scope="session")
async def later(shared_stack: SharedStack) -> AsyncIterator[Guest]:
    """The shared stack, with another tenant, whose jobs make way for those of `home`."""
    async with new_guest(await shared_stack.ready(), "standard") as guest:
        yield guest
        await cancel_jobs(guest)
