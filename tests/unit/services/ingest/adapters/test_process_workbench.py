"""Worker processes: no secrets, no orphans, deaths are named."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from services.ingest.adapters import process_workbench
from services.ingest.adapters.process_workbench import ProcessWorkbench, environment
from services.ingest.adapters.tasks import ScreeningTask
from services.ingest.ports import WorkFailed
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
        await ProcessWorkbench(work_ms_max=60_000).check(missing, ())
    assert re.fullmatch(r".*exited with code 1: FileNotFoundError at \w+\.py:\d+", str(died.value))
    monkeypatch.setattr(process_workbench, "MODULE", "services.no_such_worker")
    with pytest.raises(WorkFailed, match="exited with code 1: it reported no exception"):
        await ProcessWorkbench(work_ms_max=60_000).check(missing, ())


async def test_work_that_needs_too_much_memory_is_named(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    rows.write_bytes(b'{"text": "' + b"x" * 8_000_000 + b'"}\n')
    # Enough to start and to end in order (half of it), too little for the signature of this row.
    small = ProcessWorkbench(work_ms_max=60_000, memory_bytes_max=240_000_000)
    with pytest.raises(WorkFailed, match="MemoryError"):
        await small.check(rows, ())


@pytest.mark.long
async def test_rows_are_screened_by_the_operator_s_policy(tmp_path: Path) -> None:
    question = "How many lamps burn when seven keepers light nine lamps each on one dark night?"
    exam, rows = tmp_path / "exam.jsonl", tmp_path / "rows"
    exam.write_text(json.dumps({"question": question, "answer": "63"}))
    benchmarks.add(tmp_path / "known", "exam", [exam])
    rows.write_text(
        "".join(
            json.dumps({"prompt": f"{number} and {question}", "completion": "63"}) + "\n"
            for number in range(10)
        )
    )
    known = str(tmp_path / "known")
    flag = ProcessWorkbench(
        work_ms_max=60_000, screen=ScreeningTask(policy=ScreeningPolicy(), benchmarks=known)
    )
    refuse = ScreeningPolicy(benchmarks="escalate")
    escalate = ProcessWorkbench(
        work_ms_max=60_000, screen=ScreeningTask(policy=refuse, benchmarks=known)
    )
    assert (await flag.check(rows, ())).accepted
    refused = await escalate.check(rows, ())
    assert not refused.accepted
    assert json.loads(refused.report)["counts"]["benchmark_refused"] == 10


async def test_a_cancelled_work_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(b"x" * 1000)
    task = asyncio.create_task(ProcessWorkbench(work_ms_max=60_000).check(tmp_path / "rows", ()))
    for _ in range(1000):
        if _children(str(tmp_path)):
            break
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not _children(str(tmp_path))


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
