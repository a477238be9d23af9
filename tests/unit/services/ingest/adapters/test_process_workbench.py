"""Worker processes: no secrets, no orphans, deaths are named."""

import asyncio
import json
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from services.ingest.adapters import process_workbench
from services.ingest.adapters.process_workbench import (
    MEMORY_BYTES_MAX,
    NICENESS,
    ProcessWorkbench,
    environment,
)
from services.ingest.adapters.tasks import ScreeningTask
from services.ingest.ports import LocalBase, WorkFailed
from tests.unit.services.ingest.base import make_base, rows
from tunery.data.screening import benchmarks
from tunery.data.screening.screening import ScreeningPolicy


def test_a_worker_gets_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNERY_POSTGRES_DSN", "secret")
    assert not [name for name in environment() if name.startswith("TUNERY_")]


async def test_the_error_of_a_dead_worker_does_not_quote_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "words-of-a-tenant"
    with pytest.raises(WorkFailed) as died:
        await ProcessWorkbench(work_ms_max=300_000).check(missing, ())
    assert re.fullmatch(r".*exited with code 1: FileNotFoundError at \w+\.py:\d+", str(died.value))
    monkeypatch.setattr(process_workbench, "MODULE", "services.no_such_worker")
    with pytest.raises(WorkFailed, match="exited with code 1: it reported no exception"):
        await ProcessWorkbench(work_ms_max=300_000).check(missing, ())


@pytest.mark.parametrize("forks", [True, False])
async def test_work_that_needs_too_much_memory_is_named(tmp_path: Path, forks: bool) -> None:
    file = tmp_path / "rows"
    file.write_bytes(b'{"text": "' + b"x" * 8_000_000 + b'"}\n')
    # Enough to start and to end in order (half of it), too little for the signature of this row.
    small = ProcessWorkbench(
        work_ms_max=300_000, memory_bytes_max=240_000_000, scratch=tmp_path if forks else None
    )
    with pytest.raises(WorkFailed, match="MemoryError"):
        await small.check(file, ())


@pytest.mark.long
async def test_rows_are_screened_by_the_operator_s_policy(tmp_path: Path) -> None:
    question = "How many lamps burn when seven keepers light nine lamps each on one dark night?"
    exam, file = tmp_path / "exam.jsonl", tmp_path / "rows"
    exam.write_text(json.dumps({"question": question, "answer": "63"}))
    benchmarks.add(tmp_path / "known", "exam", [exam])
    file.write_text(
        "".join(
            json.dumps({"prompt": f"{number} and {question}", "completion": "63"}) + "\n"
            for number in range(10)
        )
    )
    known = str(tmp_path / "known")
    flag = ProcessWorkbench(
        work_ms_max=300_000, screen=ScreeningTask(policy=ScreeningPolicy(), benchmarks=known)
    )
    refuse = ScreeningPolicy(benchmarks="escalate")
    escalate = ProcessWorkbench(
        work_ms_max=300_000, screen=ScreeningTask(policy=refuse, benchmarks=known)
    )
    assert (await flag.check(file, ())).accepted
    refused = await escalate.check(file, ())
    assert not refused.accepted
    assert json.loads(refused.report)["counts"]["benchmark_refused"] == 10


async def test_forked_workers_answer_as_programs_do(tmp_path: Path) -> None:
    """Also of several base models, and where one of them cannot be used."""
    (tmp_path / "rows").write_bytes(rows(30) + b'{"messages": []}\n')
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tokenizer.json").write_text("{}")
    bases = tuple(
        LocalBase(base_id=path.name, sha256="b" * 64, path=str(path))
        for path in (make_base(tmp_path / "small"), tmp_path / "broken")
    )
    forking = ProcessWorkbench(
        work_ms_max=300_000, scratch=tmp_path, memory_bytes_max=2 * MEMORY_BYTES_MAX
    )
    executing = ProcessWorkbench(work_ms_max=300_000)
    forked, executed = [
        [await workbench.check(tmp_path / "rows", bases, most, 7) for most in (None, 30)]
        for workbench in (forking, executing)
    ]
    assert forking._workers.server_pid is not None
    assert executing._workers.server_pid is None
    assert forked == executed
    assert [base.base_id for base in forked[0].tokens] == []
    assert forked[0].unusable


async def test_checks_go_on_after_their_server_was_killed(tmp_path: Path) -> None:
    """kill -9 in the middle: that check has failed and is tried again, the next one is done."""
    os.mkfifo(path := tmp_path / "rows")  # the check waits for its first byte
    workbench = ProcessWorkbench(work_ms_max=300_000, scratch=tmp_path)
    task = asyncio.create_task(workbench.check(path, ()))
    server, _ = await _at_work(workbench)
    os.kill(server, signal.SIGKILL)
    with pytest.raises(WorkFailed, match="killed by signal 9"):
        await task
    path.unlink()
    path.write_bytes(rows(30))
    assert (await workbench.check(path, ())).accepted


async def test_a_check_stands_back_as_its_plan_says_and_by_five_at_least(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "rows")
    workbench = ProcessWorkbench(work_ms_max=300_000, scratch=tmp_path)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    for asked, expected in ((None, NICENESS), (0, NICENESS), (9, 9)):
        task = asyncio.create_task(workbench.check(path, (), None, asked))
        seen = None
        while seen != expected:
            server, worker = await _at_work(workbench)
            with suppress(ProcessLookupError):  # another server and worker are in their place
                seen = os.getpriority(os.PRIO_PROCESS, worker) - own
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while _workers_of(server):  # noqa: ASYNC110  # processes set no event
            await asyncio.sleep(0.005)


async def test_a_cancelled_work_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(b"x" * 1000)
    task = asyncio.create_task(ProcessWorkbench(work_ms_max=300_000).check(tmp_path / "rows", ()))
    for _ in range(1000):
        if _children(str(tmp_path)):
            break
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not _children(str(tmp_path))


async def _at_work(workbench: ProcessWorkbench) -> tuple[int, int]:
    """The server and its first worker, once that computes.

    A server that was killed before it told of its worker has another one in its place, which
    begins the check anew.
    """
    while (server := workbench._workers.server_pid) is None or not (pids := _workers_of(server)):  # noqa: ASYNC110  # processes set no event
        await asyncio.sleep(0.005)
    while len([*Path(f"/proc/{pids[0]}/task").iterdir()]) == 1:  # noqa: ASYNC110  # as above
        await asyncio.sleep(0.005)
    return server, pids[0]


def _children(argument: str) -> list[int]:
    """Our processes that carry this argument."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if argument.encode() in words:
            pids.append(int(folder.name))
    return pids


def _workers_of(server: int | None) -> list[int]:
    try:
        return list(map(int, Path(f"/proc/{server}/task/{server}/children").read_text().split()))
    except OSError:
        return []
