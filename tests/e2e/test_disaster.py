"""A disaster drill with the commands of docs/how-to/backup.md: Kafka, PostgreSQL and the data
directory are lost under load, and come back from a backup.

What is left is what the page tells to keep: the backup, the objects, `secrets.json`, root keys and
the key that signs models.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.bases import tiny_base
from tests.e2e.stories import (
    AGENT_A,
    COMMAND_S_MAX,
    TINY,
    Api,
    RunningStack,
    client,
    replayed,
    rows,
    tunery,
)
from tests.stacks import sweep, temporary_data_dir
from tunery.cli.demo.receiver import Receiver, receiving
from tunery.local import initial_setup
from tunery.local.paths import DataDir
from tunery.local.stack import AGENT, SERVICES, ServiceSpec, Stack, stack

pytestmark = pytest.mark.timeout(1_200)

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "how-to" / "backup.md"
#: kept apart from the backup, as the page says
KEPT: Final = ("secrets.json", "roots", "signing", "s3")
PAUSE_S: Final = 0.3
SETTLED_S_MAX: Final = 240.0
WAITING_MAX: Final = 5  # jobs of the load that are not cancelled yet
SUCCEEDED: Final = "fine_tuning.job.succeeded"
SPECS: Final = (
    *(
        ServiceSpec(name, env={"TUNERY_NOTIFIER_ALLOW_PRIVATE": "1"})
        for name in SERVICES
        if name != AGENT
    ),
    AGENT_A,
)


async def test_all_is_lost_under_load_and_comes_back_from_a_backup(tmp_path: Path) -> None:
    sweep()
    backup = tmp_path / "backup"
    with receiving() as receiver, temporary_data_dir() as old, temporary_data_dir() as new:
        async with (
            stack(old, SPECS, environ={}) as running,
            first_tenant(running, receiver) as home,
        ):
            model, delivered = await train_until_delivered(home)
            load = asyncio.create_task(submit_for_ever(home.api, home.request()))
            await backed_up_after_a_kill(old, backup)
            acknowledged = set(await ids(home.api))
            assert len(acknowledged) > WAITING_MAX
            summary = await page_command(old, "backup", backup)
            assert (summary["number"], summary["keys"]) == (2, 1)
            assert summary["objects"] > 0
            assert len(set(await ids(home.api)) - acknowledged) > 1, "jobs came during the backup"
            assert not load.done()
            load.cancel()
            bill = await home.bill(model["id"])
        for name in KEPT:
            shutil.move(old / name, new / name)
        shutil.rmtree(old)
        old.mkdir()
        async with stack(new, environ={}) as running:
            await restored_after_a_kill(new, backup)
            begun = time.monotonic()
            await running.add(*SPECS)
            async with client(running.api_url, running.admin_key) as http:
                api = Api(http)
                assert set(await ids(api)) >= acknowledged
                print(f"ready {time.monotonic() - begun:.1f} s after the services were started")
                again = RunningStack(
                    api, TINY, home.file_id, running.postgres_dsn, running, receiver
                )
                assert await again.bill(model["id"]) == bill
                assert (await api.get(f"/fine_tuning/jobs/{model['id']}"))["status"] == "succeeded"
                later = await again.submit()
                assert later not in acknowledged
                await cancel_all(api)
                await all_is_equal(new)
        counts = Counter(post.headers["webhook-id"] for post in receiver.received)
        assert counts == dict.fromkeys(delivered, 1)


@asynccontextmanager
async def first_tenant(running: Stack, receiver: Receiver) -> AsyncIterator[RunningStack]:
    tiny = await asyncio.to_thread(tiny_base)
    await initial_setup.run_setup_steps(running, lambda _line: None, (initial_setup.create_tenant,))
    async with client(running.api_url, running.admin_key) as http:
        api = Api(http)
        await api.post("/bases", {"id": TINY, "path": str(tiny.dir)})
        file_id = await api.upload(rows())
        yield RunningStack(api, TINY, file_id, running.postgres_dsn, running, receiver)


async def train_until_delivered(home: RunningStack) -> tuple[Any, set[str]]:
    """A job that has succeeded, and the ids of its webhooks, whose arrival is on the log."""
    endpoint = await home.api.post(
        "/webhook_endpoints",
        {"name": "drill", "url": home.receiver.url, "event_types": [SUCCEEDED]},
    )
    model = await home.api.ended(await home.submit(n_epochs=1))
    await home.api.until(
        f"/webhook_endpoints/{endpoint['id']}/deliveries",
        lambda page: [delivery["outcome"] for delivery in page["data"]] == ["delivered"],
    )
    return model, {post.headers["webhook-id"] for post in home.receiver.received}


async def submit_for_ever(api: Api, body: dict[str, Any]) -> None:
    """Submit jobs, and cancel the oldest ones: a tenant may have 20 at a time."""
    waiting: deque[str] = deque()
    while True:
        waiting.append(await api.submit(body))
        if len(waiting) > WAITING_MAX:
            await api.post(f"/fine_tuning/jobs/{waiting.popleft()}/cancel")
        await asyncio.sleep(PAUSE_S)


async def ids(api: Api) -> list[str]:
    """Ids of all jobs that the API has acknowledged."""
    job_ids: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = await api.get("/fine_tuning/jobs", limit="100", **after)
        job_ids += [job["id"] for job in page["data"]]
        if not page["has_more"]:
            return job_ids
        after = {"after": job_ids[-1]}


async def cancel_all(api: Api) -> None:
    for job_id in await ids(api):
        await api.patiently("POST", f"/fine_tuning/jobs/{job_id}/cancel")


async def all_is_equal(folder: Path) -> None:
    """`tunery replay --verify` and `tunery reconcile`, once nothing is under way any more."""
    deadline = time.monotonic() + SETTLED_S_MAX
    while True:
        report = await replayed(folder)
        status, said = await tunery(folder, "reconcile", "--json")
        if report["equal"] and status == 0:
            return
        assert time.monotonic() < deadline, (report, said)
        await asyncio.sleep(1)


# --- commands, and their kills --------------------------------------------------------------------


async def page_command(folder: Path, verb: str, backup: Path) -> Any:
    """The result of the page's first command of a kind, with the folder of this test."""
    line = re.search(rf"^\$ tunery ({verb} \S+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert line is not None
    words = line[1].replace("/mnt/backup", str(backup)).split()
    status, said = await tunery(folder, *words, "--json")
    assert status == 0, said
    return json.loads(said)


async def killed(folder: Path, words: Sequence[str], is_time: Callable[[str], bool]) -> None:
    """Run a command and kill it with SIGKILL once its lines of progress, or its files, say so."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tunery.cli.main", *words, "--data-dir", str(folder)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    said = ""
    async with asyncio.timeout(COMMAND_S_MAX):
        while not is_time(said):
            assert process.returncode is None, said
            try:
                line = await asyncio.wait_for(process.stderr.readline(), 0.01)
            except TimeoutError:
                continue
            said += line.decode()
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()


async def backed_up_after_a_kill(folder: Path, backup: Path) -> None:
    await killed(
        folder,
        ("backup", str(backup)),
        lambda _: bool(list((backup / "segments").glob("dataset-*"))),
    )
    assert not list((backup / "manifests").glob("*.json"))
    assert (await page_command(folder, "backup", backup))["number"] == 1


async def restored_after_a_kill(folder: Path, backup: Path) -> None:
    await killed(folder, ("restore", str(backup)), lambda said: "pool: restoring" in said)
    done = await page_command(folder, "restore", backup)
    assert done["continued"] > 0
    assert (done["keys"], done["unopened_keys"], done["missing_objects"]) == (1, {}, [])
    verified, _ = await tunery(folder, "journal", "verify")
    assert verified == 0


def test_page_names_what_is_kept_apart() -> None:
    text = PAGE.read_text(encoding="utf-8")
    folders = DataDir(Path("x"))
    for path in (folders.secrets, folders.roots, folders.signing):
        assert f"`{path.name}`" in text
