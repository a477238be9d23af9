"""kill -9 of all processes including the supervisor; after `tunery up` the running job resumes."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.bases import tiny_base
from tests.e2e.stories import (
    TINY,
    Api,
    Tenant,
    client,
    replayed,
    rows,
    training,
    tunery,
)
from tests.stacks import sweep, temporary_data_dir
from tunery.local import ports, processes, secrets, state
from tunery.local.paths import DataDir
from tunery.local.postgres import dsn
from tunery.local.stack import SERVERS, SERVICES

pytestmark = pytest.mark.timeout(900)
DEATH_MS_MAX = 60_000


@pytest_asyncio.fixture(loop_scope="session")
async def folders() -> AsyncIterator[DataDir]:
    sweep()
    with temporary_data_dir() as root:
        data_dir = DataDir(root)
        data_dir.create()
        ports.assign(data_dir.ports, lambda _text: None, ports.ANY)
        yield data_dir
        await tunery(root, "down")


async def up(folders: DataDir) -> dict[str, Any]:
    status, said = await tunery(folders.root, "up", "--detach", "--json")
    assert status == 0, said
    report: dict[str, Any] = json.loads(said)
    return report


def kill_everything(folders: DataDir) -> set[str]:
    """SIGKILL the supervisor and all its descendants; returns the names of its children."""
    supervisor = state.read(folders).supervisor
    assert supervisor is not None
    records = [processes.read_record(file) for file in folders.run.glob("*.pid")]
    named = [process for process in records if process is not None]
    children = [processes.record("below", pid) for pid in processes.descendants(supervisor.pid)]
    everything = [supervisor, *(process for process in children if process is not None)]
    for process in everything:
        os.kill(process.pid, signal.SIGKILL)
    assert all(processes.await_end(process, DEATH_MS_MAX) for process in (*everything, *named))
    return {process.name for process in named}


@pytest.mark.soak  # test_disaster loses everything, the disks too, and test_bad_days each process
async def test_a_running_job_survives_kill_9_of_everything(folders: DataDir) -> None:
    stack_report = await up(folders)
    async with client(stack_report["api_url"], stack_report["admin_key"]) as http:
        api = Api(http)
        tiny = await asyncio.to_thread(tiny_base)
        await api.post("/bases", {"id": TINY, "path": str(tiny.dir)})
        postgres_dsn = dsn(ports.read(folders.ports)["postgres"], secrets.load(folders.secrets))
        home = Tenant(api, TINY, await api.upload(rows()), postgres_dsn)
        job_id = await home.submit(n_epochs=40)
        kept = await home.with_checkpoint(job_id)
        killed = await asyncio.to_thread(kill_everything, folders)
        assert killed >= {*SERVERS, *SERVICES}
        assert await up(folders) == stack_report
        job = await api.job(
            job_id, lambda job_state: job_state["attempt"] == 2 and training(job_state)
        )
        assert job["progress"]["resumed_from_step"] >= kept["step_number"]
        assert "Attempt 1 lost its machine" in "\n".join(await api.messages(job_id))
        await api.post(f"/fine_tuning/jobs/{job_id}/cancel")
        await api.ended(job_id, "cancelled")
        bill = await home.bill(job_id)
        assert {line["attempt"] for line in bill["lines"]} == {1, 2}
    verdict = await replayed(folders.root)
    assert verdict["equal"], verdict
