"""The unmodified Tinker SDK, with a training loop of the tenant's own, on a live stack.

Its process, and its node with the gateway, are killed in the middle of it, and its slot is taken
for an earlier lane; what is saved at the end has the bytes of a loop that nothing disturbed.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import asyncpg
import httpx
import pytest

from schemas.access import schema_of
from schemas.session import TOKEN_KINDS
from tests.e2e.shared.guests import Guest
from tests.e2e.stories import training
from tests.e2e.test_confinement import AGENT
from tests.environments import environment, site_packages
from tunery.local import processes

pytestmark = pytest.mark.timeout(900)

VERSION: Final = "0.30.0"
NEWEST: Final = "0.38.0"  # of those that the page names
SCRIPT: Final = Path(__file__).with_name("tinker_script.py")
PAGE: Final = Path(__file__).parents[3] / "docs" / "how-to" / "own-loop.md"
STORY_S_MAX: Final = 600
ERASED_S_MAX: Final = 180
ROWS: Final = schema_of("gateway")
SAVED: Final = f"SELECT files FROM {ROWS}.saved_weights WHERE session_id = $1 AND command = $2"  # noqa: S608  # our names
LAST: Final = (
    f"SELECT id FROM {ROWS}.session_commands WHERE session_id = $1 AND kind = 'save_state' "  # noqa: S608  # our names
    "ORDER BY seq DESC LIMIT 1"
)


class Loop:
    """A process of a story, which says when it is half-way, and waits for a line."""

    def __init__(self, home: Guest, process: asyncio.subprocess.Process) -> None:
        self.home, self._process = home, process

    async def half(self) -> None:
        assert self._process.stdout is not None
        if not await self._process.stdout.readline():
            await self.result()

    async def warned(self, words: str) -> None:
        """Wait until the SDK has logged this."""
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            if words in line.decode():
                return
        raise AssertionError(f"the SDK has never said {words!r}")

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    async def result(self) -> Any:
        """Return the last line that it prints, as JSON."""
        out, errors = await self._process.communicate()
        assert self._process.returncode == 0, errors.decode()
        return json.loads(out.splitlines()[-1])


@asynccontextmanager
async def a_loop(home: Guest, story: str, **metadata: str) -> AsyncIterator[Loop]:
    programs = await asyncio.to_thread(environment, "tinker", VERSION)
    process = await asyncio.create_subprocess_exec(
        *(str(programs / "python"), str(SCRIPT), story),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            "TUNERY_URL": home.stack.api_url,
            "TUNERY_KEY": home.key,
            "TUNERY_MODEL": home.base,
            "TUNERY_METADATA": json.dumps(metadata),
            "TUNERY_PACKAGES": str(site_packages()),
            "HOME": str(programs.parent),
        },
    )
    try:
        async with asyncio.timeout(STORY_S_MAX):
            yield Loop(home, process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def run_loop(home: Guest, story: str, kill: Callable[[Guest], None] | None = None) -> Any:
    """Return what a loop prints last. kill: what is killed in the middle of it."""
    async with a_loop(home, story) as loop:
        await loop.half()
        if kill is not None:
            kill(home)
        loop.go_on()
        return await loop.result()


async def session_of(home: Guest) -> str:
    """The newest session."""
    newest: str = (await home.api.get("/sessions"))["data"][0]["id"]
    return newest


def kill_processes(home: Guest) -> None:
    agent = home.stack.supervisor.pid(AGENT)
    assert agent is not None
    for pid in processes.descendants(agent):  # the session's, and one that waits for the next
        os.kill(pid, signal.SIGKILL)


def kill_node_and_gateway(home: Guest) -> None:
    """kill -9 of the node's agent with all of its processes, and of the gateway."""
    home.stack.supervisor.kill(AGENT, tree=True)
    home.stack.supervisor.kill("gateway")


async def saved(home: Guest, session_id: str) -> dict[str, str]:
    """Hashes of the weights and the optimizer that a session has saved last."""
    connection = await asyncpg.connect(home.dsn)
    try:
        name = await connection.fetchval(LAST, session_id)
        files = json.loads(await connection.fetchval(SAVED, session_id, name))
    finally:
        await connection.close()
    return {f["name"]: f["sha256"] for f in files if f["name"].endswith(".safetensors")}


async def rows_of(home: Guest, query: str, *values: str) -> list[dict[str, str]]:
    """Hashes of files by name, of each row of a query."""
    connection = await asyncpg.connect(home.dsn)
    try:
        rows = await connection.fetch(query, *values)
    finally:
        await connection.close()
    return [{file["name"]: file["sha256"] for file in json.loads(row["files"])} for row in rows]


async def end(home: Guest, session_id: str) -> None:
    async with httpx.AsyncClient(base_url=home.stack.api_url, trust_env=False) as client:
        reply = await client.post(
            "/api/v1/unload_model",
            json={"model_id": session_id},
            headers={"x-api-key": f"tml-{home.key}"},
        )
    assert reply.is_success, reply.text
    job = await home.api.ended(session_id)
    assert job["fine_tuned_model"] is None
    cost = await home.bill(session_id)
    assert cost["net_gpu_ms"] > 0


async def make_way(later: Guest, session_id: str, home: Guest) -> None:
    """Have a job of an earlier lane take the slot of a session, and give it back."""
    urgent = await home.submit(n_epochs=20)
    await later.api.job(session_id, lambda job: job["phase"] == "queued", 120)
    await home.api.job(urgent, training)
    why = await later.command("session", "why", session_id)
    assert why["queue"]["code"] == "no_capacity", why
    (last,) = (await later.api.get(f"/fine_tuning/jobs/{session_id}/events", limit=1))["data"]
    assert (last["details"]["ended_by"], last["details"]["reason"]) == ("scheduler", "preempted")
    await home.api.post(f"/fine_tuning/jobs/{urgent}/cancel")


async def test_a_tinker_loop_that_is_killed_and_makes_way_ends_with_the_same_bytes(
    home: Guest, later: Guest
) -> None:
    async with a_loop(later, "supervised") as loop:
        await loop.half()
        kill_processes(later)
        session_id = await session_of(later)
        await later.api.job(
            session_id, lambda job: job["attempt"] == 2 and job["phase"] == "running"
        )
        await make_way(later, session_id, home)
        loop.go_on()
        story = await loop.result()
    losses = story["losses"]
    assert losses[-1] < 0.7 * losses[0]
    assert story["scored"] == pytest.approx(story["trained"], abs=1e-5)
    assert story["scored"][3:] == pytest.approx(story["sampled"], abs=1e-5)
    job = await later.api.get(f"/fine_tuning/jobs/{story['model']}")
    assert job["attempt"] == 3
    killed = await saved(later, story["model"])
    await end(later, story["model"])
    calm = await run_loop(later, "supervised")
    assert calm["losses"] == losses
    assert await saved(later, calm["model"]) == killed
    await end(later, calm["model"])
    async with a_loop(later, "afterwards", path=calm["sampler"]) as loop:
        again = await loop.result()
    assert again["tokens"] == calm["tokens"]
    assert again["sampled"] == pytest.approx(calm["sampled"], abs=1e-5)
    assert again["scored"] == pytest.approx(calm["scored"], abs=1e-5)
    assert sum(again["of_base"]) < sum(again["scored"]) - 1
    await end(later, await session_of(later))  # one for both samplers
    folder = str(later.stack.folders.root)
    replay = await later.command("replay", story["model"], "--data-dir", folder)
    assert replay["equal"], replay
    assert {part["name"] for part in replay["parts"] if part["count"]} >= {"bill", "saved weights"}
    name = calm["sampler"].rpartition("/")[2]
    job = await later.command("session", "publish", calm["model"], name, "--suffix", "loop")
    version = (await later.api.ended(job["id"]))["fine_tuned_model"]
    listed = await later.api.get(f"/models/{quote(version, safe='')}")
    assert listed["lineage"]["saved_in"]["session_id"] == calm["model"]
    published = await later.published(job["id"])
    weights = f"SELECT files FROM {ROWS}.saved_weights WHERE session_id = $1"  # noqa: S608  # our names
    kept = await rows_of(later, weights, calm["model"])
    assert any(published.items() <= dict(files).items() for files in kept)


@pytest.mark.soak  # kills are those of the test above
async def test_rewards_of_a_tinker_loop_double_and_a_kill_changes_no_byte(home: Guest) -> None:
    story = await run_loop(home, "rewarded", kill_node_and_gateway)
    rewards = story["rewards"]
    assert sum(rewards[-3:]) > 2 * sum(rewards[:3]), rewards
    killed = await saved(home, story["model"])
    await end(home, story["model"])
    calm = await run_loop(home, "rewarded")
    assert calm["rewards"] == rewards
    assert await saved(home, calm["model"]) == killed
    await end(home, calm["model"])


async def test_a_tinker_loop_waits_at_its_cap_and_goes_on_once_it_is_raised(home: Guest) -> None:
    cap = {"tunery_max_tokens": "100", "tunery_max_minutes": "1"}  # three steps of 32 tokens
    async with a_loop(home, "capped", **cap) as loop:
        await loop.warned("paused due to billing")
        session_id = await session_of(home)
        log = await home.command("session", "log", session_id)
        assert [each["kind"] for each in log].count("forward_backward") == 3
        await home.command("session", "raise", session_id, "--tokens", "10000")
        # it takes no more than half of its steps before it may go on
        at_cap = await home.api.job(session_id, lambda job: job["phase"] == "queued", 120)
        assert at_cap["queue"]["code"] == "session_cap", at_cap
        loop.go_on()
        await asyncio.sleep(10)  # its requests are taken, and paused
        raised = await home.command("session", "raise", session_id, "--minutes", "20")
        assert raised["max_minutes"] == 20
        story = await loop.result()
    assert len(story["losses"]) == 12
    assert story["losses"][-1] < 0.7 * story["losses"][0]
    capped = await saved(home, session_id)
    await end(home, session_id)
    calm = await run_loop(home, "capped")
    assert calm["losses"] == story["losses"]
    assert await saved(home, calm["model"]) == capped
    await end(home, calm["model"])


async def test_a_tinker_client_computes_a_loss_of_its_own_beside_those_of_the_server(
    home: Guest,
) -> None:
    async with a_loop(home, "losses") as loop:
        story = await loop.result()
    loss, tokens = story["sums"].pop("cross_entropy"), 4 * 8
    # the policy is its sampler, and each advantage is 1
    expected = {"importance_sampling": -tokens, "ppo": -tokens, "cispo": loss, "dro": loss}
    assert story["sums"] == pytest.approx(expected, rel=1e-4)
    assert (story["own"], story["sent"]) == pytest.approx((loss, loss), rel=1e-4)
    assert story["after"] < loss
    await end(home, story["model"])


async def test_a_tinker_loop_whose_node_is_drained_waits_and_goes_on(home: Guest) -> None:
    async with a_loop(home, "supervised") as loop:
        await loop.half()
        session_id = await session_of(home)
        await home.operator.post("/nodes/a/drain")
        try:
            waits = await home.api.job(session_id, lambda job: job["phase"] == "queued", 120)
            loop.go_on()
            why = await home.command("session", "why", session_id)
            assert "node" in json.dumps(why), waits
        finally:
            await home.operator.post("/nodes/a/uncordon")
        story = await loop.result()
    job = await home.api.get(f"/fine_tuning/jobs/{session_id}")
    assert job["attempt"] == 2
    assert story["losses"][-1] < 0.7 * story["losses"][0]
    await end(home, session_id)
    tenant, tokens = await tokens_of_invoice(home, session_id)
    assert all(tokens.values()), tokens
    # once its tenant is erased, the bill and the tokens are what is left to compare
    await home.operator.post(f"/tenants/{tenant}/erase", {"confirm": tenant})
    async with asyncio.timeout(ERASED_S_MAX):
        path = f"/tenants/{tenant}/erasure"
        while (await home.operator.get(path))["status"] != "done":  # noqa: ASYNC110  # over HTTP
            await asyncio.sleep(1)
    folder = str(home.stack.folders.root)
    replay = await home.command("replay", session_id, "--data-dir", folder, code=2)
    parts = {part["name"]: part for part in replay["parts"]}
    assert [part["difference"] for part in parts.values()] == [None] * 3, replay
    assert [name for name, part in parts.items() if part["missing"]] == ["answers"], replay
    assert parts["tokens by kind"]["count"] == sum(tokens.values())
    assert parts["bill"]["count"] > 0


async def tokens_of_invoice(home: Guest, session_id: str) -> tuple[str, dict[str, int]]:
    """The tenant, and the tokens of its only session by kind: the same wherever they are shown."""
    (draft,) = (await home.api.get("/invoices"))["data"]
    lines = (await home.api.get(f"/invoices/{draft['id']}/lines", limit=1_000))["data"]
    (line,) = [line for line in lines if line["kind"] == "session"]
    assert (line["job_id"], line["amount_micro"]) == (session_id, 0)
    days = (await home.api.get("/usage/sessions", limit=31))["data"]
    results = [result for day in days for result in day["results"]]
    tokens = {kind: sum(result[kind] for result in results) for kind in TOKEN_KINDS}
    for record in (draft, line):
        assert {kind: record[kind] for kind in TOKEN_KINDS} == tokens
    return draft["buyer"], tokens


@pytest.mark.parametrize("version", [VERSION, NEWEST])
async def test_the_page_on_tinker_loops_runs(home: Guest, tmp_path: Path, version: str) -> None:
    losses = await run_page(version, {**home.variables, "TUNERY_MODEL": home.base}, tmp_path)
    assert losses[-1] < losses[0]


async def run_page(version: str, variables: Mapping[str, str], folder: Path) -> list[float]:
    """Run the loop of the page with a version of the SDK; return its losses."""
    program = folder / "loop.py"
    program.write_text(PAGE.read_text("utf-8").split("```python\n")[1].split("```")[0], "utf-8")
    programs = await asyncio.to_thread(environment, "tinker", version)
    process = await asyncio.create_subprocess_exec(
        *(str(programs / "python"), str(program)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**variables, "HOME": str(folder)},
    )
    out, errors = await asyncio.wait_for(process.communicate(), STORY_S_MAX)
    assert process.returncode == 0, errors.decode()
    *steps, tokens = out.decode().splitlines()
    losses = [float(step.split()[1]) for step in steps]
    assert len(losses) == len(json.loads(tokens)) == 5
    return losses
