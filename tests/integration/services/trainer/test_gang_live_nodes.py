"""A training of two nodes where something is wrong with one of them, or with what is between."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from schemas.node import DrainNode
from services.trainer.effect.gang_link import SILENT_S_MAX
from tests.integration.services.trainer.gang_nodes import PLAIN, GangNodes, Machine, gang_nodes

pytestmark = [pytest.mark.train, pytest.mark.timeout(300)]

LONG = 3_000  # steps: it does not end before it is told to
OTHER_LIBRARY = """
import importlib.metadata as metadata
version = metadata.version
metadata.version = lambda name: version(name) + ".post1" * (name == "safetensors")
"""


async def test_a_member_that_drains_stops_all_after_one_step_and_they_go_on_from_it(
    tmp_path: Path,
) -> None:
    async with gang_nodes(tmp_path, dict.fromkeys("abc", PLAIN), steps=400) as nodes:
        await nodes.train(2)
        await nodes.started()
        await nodes.send(DrainNode(node_id="b"))
        assert await nodes.end() == "preempted"
        assert nodes.ends()[0].node_ids == ("a", "b")
        (saved,) = nodes.checkpoints()
        await nodes.train(2, attempt=2)
        assert await nodes.end(2) == "succeeded"
        assert (await nodes.started(2)).start.loaded_step == saved.step > 0
        assert nodes.ends()[1].node_ids == ("a", "c")
        drained = nodes.ends()[0]
        assert drained.billable_gpu_ms - drained.lost_gpu_ms == 2 * saved.captured_ms


async def test_a_member_without_the_base_model_is_named_and_the_others_train(
    tmp_path: Path,
) -> None:
    machines = {"a": PLAIN, "b": Machine(base_dir=str(tmp_path / "none")), "c": PLAIN}
    async with gang_nodes(tmp_path, machines) as nodes:
        await nodes.train(2)
        assert await nodes.end() == "failed"
        (end,) = nodes.ends()
        assert (end.cause, end.faulty_node, end.used_gpu_ms) == ("bad_node", "b", 0)
        assert "Fetch the base model again" in nodes.said(end)
        await nodes.train(2, attempt=2, excluded_nodes=end.nodes_at_fault)
        assert await nodes.end(2) == "succeeded"
        assert nodes.ends()[1].node_ids == ("a", "c")


async def test_a_network_that_stands_still_ends_all_and_names_the_node(tmp_path: Path) -> None:
    """Nothing is refused and nothing ends: bytes are carried no more."""
    machines = {"a": Machine(reached_as="127.0.0.2"), "b": PLAIN}
    async with gang_nodes(tmp_path, machines, steps=LONG) as nodes:
        await nodes.train(2)
        async with _carrying("127.0.0.2", await nodes.port()) as carries:
            await nodes.started()
            carries.clear()
            began_s = asyncio.get_running_loop().time()
            assert await nodes.end() == "failed"
            took_s = asyncio.get_running_loop().time() - began_s
        (end,) = nodes.ends()
        assert (end.cause, end.faulty_node) == ("platform", "b")
        assert "the connection to b was lost: nothing was heard for 20 s" in nodes.said(end)
        assert SILENT_S_MAX - 2 < took_s < SILENT_S_MAX + 20
        assert end.lost_gpu_ms == end.billable_gpu_ms > 0


async def test_a_first_node_that_cannot_listen_says_which_setting(tmp_path: Path) -> None:
    machines = {"a": Machine(host="192.0.2.1"), "b": PLAIN}
    async with gang_nodes(tmp_path, machines) as nodes:
        await nodes.train(2)
        await assert_bad_node(nodes, "a", "a cannot listen at 192.0.2.1", "TUNERY_NODE_GANG_HOST")


async def test_a_first_node_that_is_not_reached_as_it_says_is_named_with_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("gang_leading", "gang_following"):
        monkeypatch.setattr(f"services.trainer.effect.{module}.JOIN_S_MAX", 3.0)
    machines = {"a": Machine(reached_as="127.0.0.3"), "b": PLAIN}
    async with gang_nodes(tmp_path, machines) as nodes:
        await nodes.train(2)
        await assert_bad_node(nodes, "b", "b does not reach a at 127.0.0.3:", "TUNERY_NODE_GANG_AS")


async def test_a_node_with_other_libraries_is_named_before_the_first_step(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sitecustomize.py").write_text(OTHER_LIBRARY)
    other = Machine(environment={"PYTHONPATH": f"{tmp_path / 'other'}:{Path.cwd()}"})
    async with gang_nodes(tmp_path, {"a": PLAIN, "b": other}) as nodes:
        await nodes.train(2)
        await assert_bad_node(nodes, "b", "rank 1 of 2 has other inputs or libraries than rank 0")


async def assert_bad_node(nodes: GangNodes, node_id: str, *words: str) -> None:
    """Assert that the only attempt has failed for a node, before it began, with these words."""
    assert await nodes.end() == "failed"
    (end,) = nodes.ends()
    assert (end.cause, end.faulty_node, end.used_gpu_ms) == ("bad_node", node_id, 0), nodes.said(
        end
    )
    for said in words:
        assert said in nodes.said(end)


@asynccontextmanager
async def _carrying(host: str, port: int) -> AsyncIterator[asyncio.Event]:
    """A network to the same port of 127.0.0.1, which carries bytes while the event is set."""
    carries = asyncio.Event()
    carries.set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while content := await reader.read(1 << 16):
            await carries.wait()
            writer.write(content)
            await writer.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        try:
            with suppress(OSError):
                await asyncio.gather(carry(reader, back), carry(there, writer))
        finally:
            back.close()
            writer.close()

    server = await asyncio.start_server(serve, host, port)
    try:
        yield carries
    finally:
        carries.set()
        server.close()
