"""A training of two nodes, in its walls, where something is wrong with one of them."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from schemas import pool
from schemas.node import DrainNode
from services.trainer.adapters.processes import find_marked
from services.trainer.effect import gang_following
from tests.integration.services.trainer.gang_nodes import (
    PLAIN,
    WAIT_S_MAX,
    GangNodes,
    Machine,
    gang_nodes,
)
from tunery.ranks import group

pytestmark = [pytest.mark.train, pytest.mark.timeout(900)]

ENDED_S_MAX = 90  # on a machine where all cores are busy
SILENT_S = 10.0  # ten heartbeats
LONG = 1_000  # steps: it does not end before it is told to
OTHER_LIBRARY = """
import importlib.metadata as metadata
version = metadata.version
metadata.version = lambda name: version(name) + ".post1" * (name == "safetensors")
"""


async def test_a_member_that_drains_stops_all_after_one_step_and_they_go_on_from_it(
    tmp_path: Path,
) -> None:
    async with gang_nodes(tmp_path, dict.fromkeys("abc", PLAIN), steps=150) as nodes:
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


async def test_review2_d1_a_rank_that_is_killed_ends_all_in_seconds_and_is_named(
    tmp_path: Path,
) -> None:
    async with gang_nodes(tmp_path, dict.fromkeys("ab", PLAIN), steps=LONG) as nodes:
        await nodes.train(2)
        await nodes.started()
        (killed,) = find_marked(str(tmp_path / "b"))
        os.kill(killed, signal.SIGKILL)
        began_s = asyncio.get_running_loop().time()
        assert await nodes.end() == "failed"
        assert asyncio.get_running_loop().time() - began_s < ENDED_S_MAX
        (end,) = nodes.ends()
        assert end.faulty_node == "b"
        assert f"rank 1 of 2 (process {killed}) was killed by SIGKILL" in nodes.said(end)
        assert not find_marked(str(tmp_path / "a"))


async def test_review2_d1_a_rank_that_hangs_ends_all_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank neither ends nor answers: the other rank waits for it in a collective."""
    async with gang_nodes(tmp_path, dict.fromkeys("ab", PLAIN), steps=LONG) as nodes:
        await nodes.train(2)
        await nodes.started()
        monkeypatch.setattr(group, "SILENT_S_MAX", SILENT_S)
        (hung,) = find_marked(str(tmp_path / "b"))
        os.kill(hung, signal.SIGSTOP)
        assert await nodes.end() == "failed"
        (end,) = nodes.ends()
        assert (end.cause, end.faulty_node) == ("platform", "b")
        assert f"on b: rank 1 of 2 (process {hung}) stands still" in nodes.said(end)
        assert end.lost_gpu_ms == end.billable_gpu_ms > 0


async def test_a_first_node_that_cannot_listen_says_which_setting_and_frees_the_other_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_following, "JOIN_S_MAX", 2 * WAIT_S_MAX)
    machines = {"a": Machine(fabric="none0"), "b": PLAIN}
    async with gang_nodes(tmp_path, machines) as nodes:
        await nodes.train(2)
        await assert_bad_node(
            nodes, "a", "a cannot listen at its interface 'none0'", "TUNERY_NODE_FABRIC"
        )


async def test_review2_p7_nodes_without_a_fabric_get_no_training_together(tmp_path: Path) -> None:
    machines = {"a": PLAIN, "b": Machine(fabric="")}
    async with gang_nodes(tmp_path, machines) as nodes:
        await nodes.train(2)
        closed = await nodes.until(pool.PlacementClosed)
        assert closed.end.reason.code == "slots_above_largest"
        assert not any(isinstance(each, pool.LeaseGranted) for each in nodes.events)


async def test_a_node_with_other_libraries_is_named_before_the_first_step(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sitecustomize.py").write_text(OTHER_LIBRARY)
    path = f"{tmp_path / 'other'}:{Path.cwd()}"
    other = Machine(environment={"PYTHONPATH": path}, confine="off")
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
