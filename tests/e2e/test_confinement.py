"""Training, scoring and checking processes on a running stack cannot reach secrets or servers.

Its node has two slots: here is also how a training on both of them lives.
"""

import asyncio
import json
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.bases import tiny_base
from tests.e2e.stories import Json, RunningStack, rank_of, replayed, rows, running_stack, training
from tunery.local import processes
from tunery.local.stack import ServiceSpec

pytestmark = [pytest.mark.security, pytest.mark.timeout(900)]

REFUSALS: Final = ("PermissionError", "BlockingIOError")
NO_LISTENER: Final = ("ConnectionRefusedError", "OSError")
AGENT: Final = "agent-a"
PROBE: Final = Path(__file__).with_name("confinement_probe.py")
MODULES: Final = ("tunery.ml.train_and_score", "services.ingest.adapters.worker")
SCORE: Final = "tunery.ml.score"  # after a training of several ranks
RANK: Final = "rank"
OF_RANKS: Final = frozenset({"datagram", "local socket"})  # in a network with the ranks alone
SLOTS: Final = 2
MOMENT_MS: Final = 15_000  # or a third of an attempt, where the machine is slow
POLL_S: Final = 0.05


class Probed:
    """A stack whose processes probe what they can reach, and what they said so far."""

    def __init__(self, home: RunningStack, data_dir: Path) -> None:
        self.home, self.data_dir = home, data_dir
        self.said: dict[str, dict[str, str]] = {}

    async def collect(self) -> None:
        """Read what processes say, which goes with their folders when they have ended."""
        while True:
            for path in (
                *self.data_dir.glob("nodes/*/leases/*/tmp/*.json"),
                *self.data_dir.glob("ingest/work-*/tmp/*.json"),
            ):
                try:
                    self.said[path.stem] = json.loads(path.read_text())
                except (OSError, ValueError):
                    continue  # half written, or gone
            await asyncio.sleep(POLL_S)


@pytest_asyncio.fixture(scope="module", loop_scope="session", name="probed")
async def probed_stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Probed]:
    folder = tmp_path_factory.mktemp("probe")
    shutil.copy(PROBE, folder / "sitecustomize.py")
    (folder / "targets.json").write_text("{}")
    # the packages under test stay those of this run, wherever it found them
    folders = filter(None, (str(folder), os.environ.get("PYTHONPATH")))
    own = {"PYTHONPATH": os.pathsep.join(folders)}
    node = {"TUNERY_NODE_ID": "a", "TUNERY_NODE_SLOTS": str(SLOTS)}
    agent = ServiceSpec(AGENT, module="services.trainer", env={**node, **own})
    async with running_stack((agent,), ingest=own) as home:
        data_dir = home.stack.folders.root
        write_targets(folder / "targets.json", data_dir)
        yield Probed(home, data_dir)


def write_targets(path: Path, data_dir: Path) -> None:
    """Targets that the review reached from a training: secrets, other tenants' bytes, servers."""
    files = [file for file in data_dir.rglob("*") if file.is_file()]
    kept = {"keystore", "roots", "secrets.json"}
    secrets = [file for file in files if kept.intersection(file.relative_to(data_dir).parts)]
    blobs = [file for file in files if "objects" in file.parts and "files" in file.parts]
    ports = json.loads((data_dir / "ports.json").read_text())
    assert secrets, "the stack has secrets to read"
    assert blobs, "and rows of tenants"
    outside = str(Path(tempfile.gettempdir()) / "tunery-x")
    targets = {
        "read": [str(file) for file in (*secrets[:30], *blobs[:5], Path("/etc/shadow"))],
        "list": [str(data_dir), str(data_dir / "nodes"), str(Path.home())],
        "write": [str(tiny_base().dir / "model.safetensors"), str(data_dir / "x"), outside],
        "connect": [["127.0.0.1", port] for port in ports.values()] + [["192.0.2.1", 443]],
    }
    path.write_text(json.dumps(targets))


async def test_security_h1_from_inside_a_real_training_nothing_is_reached(
    probed: Probed,
) -> None:
    collecting = asyncio.create_task(probed.collect())
    try:
        file_id = await probed.home.api.upload(rows(24), "more.jsonl")
        job = await probed.home.submit(training_file=file_id)
        await probed.home.api.ended(job)
    finally:
        collecting.cancel()
    for module in MODULES:
        assert_nothing_was_reached(probed.said[module], module)
    started = logged(probed.home, job, "attempt.process_started")
    pids = {entry["pid"] for entry in started}
    assert (len(started), len(pids)) == (2, 1), "the training went on as the evaluation"


def assert_nothing_was_reached(
    said: dict[str, str], module: str, opened: frozenset[str] = frozenset()
) -> None:
    """Assert that no attempt succeeded but to open these sockets, in a network of its own."""
    facts = {name: said.pop(name) for name in ("NoNewPrivs", "Seccomp", "CapEff", "CapBnd")}
    assert facts["NoNewPrivs"] == "1", module
    assert facts["Seccomp"] == "2", module
    assert int(facts["CapEff"], 16) == int(facts["CapBnd"], 16) == 0, module
    assert (said.pop("core"), int(said.pop("files")) <= 4_096) == ("0", True)
    refusals = (*REFUSALS, *NO_LISTENER) if opened else REFUSALS
    reached = {name: text for name, text in said.items() if text not in refusals}
    assert reached.keys() == opened, (module, reached)
    assert len(said) > 20, "it tried"


async def test_ranks_on_two_slots_survive_the_loss_of_one_and_are_billed_by_slots(
    probed: Probed,
) -> None:
    """kill -9 of one rank: the other ends, the attempt names it, and the next one goes on."""
    home, collecting = probed.home, asyncio.create_task(probed.collect())
    hyper = {"n_epochs": 12, "batch_size": 4}
    method = {"type": "supervised", "supervised": {"hyperparameters": hyper}}
    asked = home.request(method=method, training={"slots": SLOTS})
    plan = await home.api.post("/fine_tuning/jobs/plan", asked)
    parts = {each["name"]: each["value"] for each in plan["settings"]}["accumulation"]
    assert (parts, plan["estimate"]["slots"]) == (2, SLOTS)
    job_id = await home.api.submit(asked)
    try:
        newest = await home.with_checkpoint(job_id)
        first = ranks_of(home)
        assert len(first) == SLOTS
        os.kill(first[1], signal.SIGKILL)
        resumed = await home.api.job(job_id, lambda job: job["attempt"] == 2 and training(job))
        job = await home.api.ended(job_id)
    finally:
        collecting.cancel()
    assert not any(Path(f"/proc/{pid}").exists() for pid in first.values())
    assert resumed["progress"]["resumed_from_step"] >= newest["step_number"]
    said = "\n".join(await home.api.messages(job_id))
    assert f"rank 1 of {SLOTS} (process {first[1]}) was killed by SIGKILL after step" in said
    assert_nothing_was_reached(probed.said[RANK], RANK, OF_RANKS)
    assert_nothing_was_reached(probed.said[SCORE], SCORE)
    assert job["attempt"] == 3, "two to train, one to evaluate"
    bill = await home.bill(job_id)
    assert bill["credited_gpu_ms"] > 0
    assert_billed_by_slots(home, job_id, bill, {1: SLOTS, 2: SLOTS, 3: 1})
    assert (await replayed(home.stack.folders.root))["equal"]


def assert_billed_by_slots(
    home: RunningStack, job_id: str, bill: Json, slots_of: dict[int, int]
) -> None:
    """Assert that each attempt costs its slots x the time that the agent measured."""
    used, elapsed = Counter[int](), elapsed_ms_by_attempt(home, job_id)
    for line in bill["lines"]:
        used[line["attempt"]] += line["used_gpu_ms"] if line["kind"] == "usage" else 0
    assert used.keys() == elapsed.keys() == slots_of.keys()
    for attempt, slots in slots_of.items():
        assert used[attempt] % slots == 0
        # at most what lies between two records on the log, which take a moment to get there
        moment = max(MOMENT_MS, elapsed[attempt] // 3)
        assert used[attempt] > 0
        assert 0 <= elapsed[attempt] - used[attempt] // slots < moment


def elapsed_ms_by_attempt(home: RunningStack, job_id: str) -> dict[int, int]:
    """Elapsed time of each attempt in the agent's log."""
    entries = logged(home, job_id, "attempt.ended")
    return {entry["attempt"]: entry["elapsed_ms"] for entry in entries}


def logged(home: RunningStack, job_id: str, event: str) -> list[Json]:
    """The agent's log lines of a kind about a job."""
    lines = (home.stack.folders.logs / f"{AGENT}.log").read_text().splitlines()
    return [json.loads(line) for line in lines if f'"{event}"' in line and job_id in line]


def ranks_of(home: RunningStack) -> dict[int, int]:
    """Process ids of the ranks that run on the node, by their numbers."""
    agent = home.stack.supervisor.pid(AGENT)
    assert agent is not None
    below = processes.descendants(agent)
    return {rank: pid for pid in below if (rank := rank_of(pid)) is not None}


async def test_security_l4_folders_of_leases_are_their_owners(probed: Probed) -> None:
    below = (path for path in probed.data_dir.glob("nodes/*/*") if path.is_dir())
    for folder in (probed.data_dir / "nodes" / "a", *below):
        assert folder.stat().st_mode & 0o077 == 0, folder
