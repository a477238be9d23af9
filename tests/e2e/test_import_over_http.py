"""Import of an account over HTTP, up to the page that compares models; its key is kept nowhere."""

import asyncio
import json
import os
import sys

import pytest

from tests.e2e.stories import COMMAND_S_MAX, TINY, rows, running_stack
from tunery.exit_kit.stand_in import KEY, account_stub

pytestmark = pytest.mark.timeout(900)
ENDED_S_MAX = 240
OLD = f"ft:{TINY}:acme:faq:1"


async def test_exit_kit_an_account_moves_over_http_and_its_key_is_nowhere() -> None:
    with account_stub() as account:
        account.add_file("file-a", rows(50) + b"{broken\n")
        hyper = {"n_epochs": 1}
        method = {"type": "supervised", "supervised": {"hyperparameters": hyper}}
        account.add_job(
            "ftjob-old",
            "file-a",
            model=TINY,
            hyperparameters=hyper,
            method=method,
            seed=None,
            fine_tuned_model=OLD,
        )
        account.answers[OLD] = lambda _messages: "Together that is <i>it</i>, captain."
        allowed = {"TUNERY_GATEWAY_IMPORT_URLS": json.dumps([account.url])}
        async with running_stack(gateway=allowed) as running:
            api = running.api
            asked = {
                "teacher_budget_micro": 1_000_000,
                "prices": [{"models": ["ft:*"], "input": 0.3, "output": 1.2}],
            }
            begun = await api.post("/imports", {"key": KEY, "base_url": account.url, **asked})
            done = await api.until(
                f"/imports/{begun['id']}", lambda read: read["status"] != "in_progress", ENDED_S_MAX
            )
            assert (done["status"], done["error"]) == ("completed", None)
            content = await api.patiently("GET", f"/files/{done['plan_file_id']}/content")
            plan = content.json()
            [moved] = plan["jobs"]
            submitted = await api.post("/fine_tuning/jobs", moved["request"])
            job = await api.ended(submitted["id"])
            assert job["metadata"]["openai_job"] == "ftjob-old"
            path = f"/fine_tuning/imports/{begun['id']}"
            batch = await api.post(f"{path}/answers")
            answered = await api.until(
                f"/batches/{batch['id']}", lambda read: read["status"] == "completed", ENDED_S_MAX
            )
            assert answered["request_counts"] == {"total": 10, "completed": 10, "failed": 0}
            page = (await api.patiently("GET", f"{path}/report")).text
            for words in (
                "of 1 models reach 95 % of the old one",
                "Together that is &lt;i&gt;it&lt;/i&gt;, captain.",
                f"<dt>job here</dt><dd>{job['id']}</dd>",
                job["fine_tuned_model"],
            ):
                assert words in page, words
            assert "not compared" not in page
            folders = running.stack.folders
            while list(folders.root.glob("imports/*")):  # noqa: ASYNC110  # a service empties it
                await asyncio.sleep(0.2)
            replay = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tunery.cli.main", "replay", "--verify"),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, "TUNERY_DATA_DIR": str(folders.root)},
            )
            out, _ = await asyncio.wait_for(replay.communicate(), COMMAND_S_MAX)
            assert replay.returncode == 0, out.decode()
            holding = [
                path
                for path in folders.root.rglob("*")
                if path.is_file() and KEY.encode() in path.read_bytes()
            ]
            assert holding == []
