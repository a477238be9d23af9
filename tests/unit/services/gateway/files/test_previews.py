"""Previews in processes of their own, with a real tokenizer."""

import asyncio
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.gateway.files.domain.preview_tasks import (
    Comparison,
    MovedModels,
    Preview,
    RefusedTask,
)
from services.gateway.files.previews import PROCESSES_MAX, PreviewProcesses
from services.gateway.imports.move_page import MeasuredMove, Moves, move_page
from services.gateway.web.domain.errors import ApiError
from tests.unit.services.ingest.base import make_base, rows
from tunery.platform.confined_workers import ConfinedWorkers


def task(file: Path, base: Path, **asked: Any) -> Preview:
    whole: dict[str, Any] = {"rows": 1, "max_length": None, "length_policy": "truncate"} | asked
    return Preview(path=str(file), base_path=str(base), **whole)


def server_of(previews: PreviewProcesses) -> int | None:
    return previews._workers.server_pid


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return make_base(tmp_path / "base")


async def test_only_assistant_messages_are_labels(base: Path) -> None:
    previews = PreviewProcesses()
    with previews.admit("acme", 1) as folder:
        file = folder / "rows"
        file.write_bytes(b'{"broken": \n' + rows(5))
        shown = await previews.ask(task(file, base, rows=2), "acme", 0)
    assert not folder.exists()
    assert [row["row"] for row in shown["data"]] == [2, 3]
    first = shown["data"][0]
    texts = [(part["text"], part["learnt"]) for part in first["segments"]]
    assert "".join(text for text, learnt in texts if learnt) == "Light number 0.<|im_end|>"
    assert texts[0][0].startswith("<|im_start|>user\nWhat is lantern 0?")
    assert len(first["token_ids"]) == len(first["loss_mask"]) == first["tokens"]
    assert sum(first["loss_mask"]) == first["trainable_tokens"]
    assert sum(part["tokens"] for part in first["segments"]) == first["tokens"]
    (problem,) = shown["problems"]
    assert problem["row"] == 1


async def test_a_base_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_bytes(rows(1))
    with pytest.raises(ApiError) as refused:
        await PreviewProcesses().ask(task(file, tmp_path), "acme", 0)
    assert (refused.value.status, refused.value.param) == (400, "model")


async def test_a_preview_that_takes_too_long_is_killed(tmp_path: Path, base: Path) -> None:
    file = tmp_path / "rows"
    file.write_bytes(rows(1))
    with pytest.raises(ApiError) as refused:
        await PreviewProcesses(wait_ms_max=1).ask(task(file, base), "acme", 0)
    assert refused.value.param == "rows"


async def test_a_preview_stands_back_as_its_tenants_plan_says(base: Path) -> None:
    previews, own, seen = PreviewProcesses(), os.getpriority(os.PRIO_PROCESS, 0), set[int]()
    while 7 not in seen:  # a preview may end before anybody has seen its process
        with previews.admit("acme", 1) as folder:
            (folder / "rows").write_bytes(rows(1))
            shown = asyncio.create_task(previews.ask(task(folder / "rows", base), "acme", 7))
            while not shown.done():
                await asyncio.sleep(0.001)
                server = server_of(previews)
                with suppress(OSError):
                    pids = Path(f"/proc/{server}/task/{server}/children").read_text().split()
                    seen |= {os.getpriority(os.PRIO_PROCESS, int(pid)) - own for pid in pids}
            assert (await shown)["data"]


async def test_a_forked_preview_shows_what_a_program_shows(tmp_path: Path, base: Path) -> None:
    """Files outside of the folder of previews are read by a program that starts anew."""
    previews, file = PreviewProcesses(), tmp_path / "rows"
    file.write_bytes(rows(5))
    executed = await previews.ask(task(file, base, rows=3), "acme", 0)
    assert server_of(previews) is None
    with previews.admit("acme", 1) as folder:
        (folder / "rows").write_bytes(rows(5))
        forked = await previews.ask(task(folder / "rows", base, rows=3), "acme", 0)
    assert server_of(previews) is not None
    assert forked == executed


async def test_previews_go_on_where_old_temporary_files_were_removed(base: Path) -> None:
    previews = PreviewProcesses()
    for _ in range(2):
        with previews.admit("acme", 1) as folder:
            (folder / "rows").write_bytes(rows(1))
            assert (await previews.ask(task(folder / "rows", base), "acme", 0))["data"]
        shutil.rmtree(folder.parent)


async def test_two_files_are_compared(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.write_bytes(rows(3))
    after.write_bytes(rows(4))
    asked = Comparison(before=str(before), after=str(after))
    result = (await PreviewProcesses().ask(asked, "acme", 0))["difference"]
    assert (result["same"], result["added"], result["removed"]) == (3, [4], [])
    with pytest.raises(ApiError, match="tunery data diff") as refused:
        await PreviewProcesses(wait_ms_max=1).ask(asked, "acme", 0)
    assert refused.value.param == "before"


async def test_exit_kit_a_page_about_moved_models_is_made_in_a_process_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    previews = PreviewProcesses()
    move = MeasuredMove("ftjob-1", "gpt", "ftjob-2", "ft:new", None, None, [], "not yet", ["bleu"])
    line = {"job_id": "ftjob-1", "messages": [{"role": "user", "content": "One?"}], "tools": None}
    with previews.admit("acme", 1) as folder:
        moves, old = folder / "moves", folder / "old"
        moves.write_bytes(msgspec.json.encode(Moves(2_000_000, [move])))
        old.write_bytes(msgspec.json.encode({**line, "reference": "Two.", "answer": "Three."}))
        asked = MovedModels(moves=str(moves), old=str(old), new=[], judged=[])
        html = (await previews.ask(asked, "acme", 0))["html"]
        with pytest.raises(ApiError, match="within 3 ms") as refused:
            await PreviewProcesses(wait_ms_max=1).ask(asked, "acme", 0)
        monkeypatch.setattr("services.gateway.imports.move_page.PAGE_BYTES_MAX", 10)
        too_large = move_page(asked)
    assert server_of(previews) is not None
    assert "not compared: not yet" in html
    assert "answers cost 2.0000 USD" in html
    assert refused.value.param == "import_id"
    assert isinstance(too_large, RefusedTask)
    assert too_large.param == "import_id"


async def test_security_m6_a_preview_has_a_limit_of_memory(base: Path) -> None:
    """A template took what it wanted: only the time was bounded."""
    # The second text asks for 2 GB at once, and is refused before a page of them is touched.
    huge = "{% set ns = namespace(a='a' * 500000) %}{% for i in range(3) %}"
    huge += "{% set ns.a = " + " ~ ".join(["ns.a"] * 80) + " %}{% endfor %}{{ ns.a | length }}"
    config = {"eos_token": "<|im_end|>", "bos_token": "<|im_start|>", "chat_template": huge}
    (base / "tokenizer_config.json").write_text(json.dumps(config))
    previews = PreviewProcesses(wait_ms_max=120_000)
    with previews.admit("acme", 1) as folder:
        (folder / "rows").write_bytes(rows(1))
        with pytest.raises(ApiError) as refused:
            await previews.ask(task(folder / "rows", base), "acme", 0)
    assert refused.value.status == 400
    assert "memory" in refused.value.message


async def test_security_m2_one_tenant_leaves_previews_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """20 requests of one tenant left another with 503 only."""
    running: list[str] = []
    end = asyncio.Event()

    async def run(_: PreviewProcesses, task: Comparison, *__: object) -> dict[str, Any]:
        running.append(task.before)
        await end.wait()
        return {}

    async def asked(tenant: str) -> None:
        with previews.admit(tenant, 8):
            await previews.ask(Comparison(before=tenant, after=""), tenant, 0)

    monkeypatch.setattr(PreviewProcesses, "_run", run)
    previews = PreviewProcesses()
    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(asked("greedy"))
        await asyncio.sleep(0)
        with pytest.raises(ApiError, match="previews_max") as refused:
            await asked("greedy")
        assert refused.value.status == 429
        group.create_task(asked("modest"))
        await asyncio.sleep(0)
        assert running == ["greedy", "modest"]
        end.set()
    assert running.count("greedy") == 8
    with previews.admit("greedy", 1):
        pass


async def test_security_m2_tenants_that_rest_hold_no_places_of_others(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rested = asyncio.Event()

    async def rest(_: ConfinedWorkers, tenant: str) -> None:
        if tenant != "modest":
            await rested.wait()

    monkeypatch.setattr(ConfinedWorkers, "rest", rest)
    previews = PreviewProcesses()
    with previews.admit("modest", 1) as folder:
        (folder / "rows").write_bytes(rows(1))
        asked = task(folder / "rows", base)
        async with asyncio.TaskGroup() as group:
            resting = [
                group.create_task(previews.ask(asked, f"greedy-{number}", 15))
                for number in range(PROCESSES_MAX)
            ]
            await asyncio.sleep(0)
            assert (await previews.ask(asked, "modest", 0))["data"]
            assert not any(other.done() for other in resting)
            rested.set()
