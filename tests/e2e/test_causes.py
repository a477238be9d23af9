"""Each cause of a failure, with a real one: the process that fails, and the one that goes on.

The table of causes is docs/how-to/failed-training.md. Processes are forked with torch imported
(tests/crashes.py), but for the disk, which needs a file system of its own, and for what needs an
agent.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from schemas import pool
from services.trainer.adapters.notices import Cloud, notices_of
from services.trainer.effect.attempt import KILLED_BY_KERNEL
from tests.bases import tiny_base
from tests.e2e.memory_groups import greedy_neighbour, join, kinds_here, memory_group
from tests.e2e.test_crash_points import Forks, adapter
from tests.e2e.test_resume import shard
from tests.unit.services.trainer.adapters.test_notices import ACTION, PREEMPTED, Metadata, metadata
from tests.unit.services.trainer.effect import machines
from tests.unit.services.trainer.effect.machines import Script
from tests.unit.tunery.ml.trainings import HYPER
from tunery.ml.order import row_order
from tunery.platform.memory_servers import memory_servers
from tunery.work.codec import encode_spec
from tunery.work.exits import EXIT_OF_CAUSE
from tunery.work.spec import TrainSpec

pytestmark = [pytest.mark.train, pytest.mark.timeout(900)]

MB: Final = 1 << 20
ROWS, AT_ONCE = 24, 8  # three steps an epoch; the logits of a step take about 66 MB
EPOCHS: Final = 50  # of a training that would last long
GROUP_BYTES: Final = 3 << 29  # a training of the tiny base takes a quarter of it
START_S_MAX: Final = 480
RANK_BYTES: Final = 64 * MB
RANKS: Final = """\
import os
if os.environ["RANK"] == "0":
    time.sleep(600)  # it waits for the other one
{join}
taken = []
while True:
    taken.append(bytes([1]) * 1_000_000)
"""
Event = dict[str, Any]


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    folder = tmp_path_factory.mktemp("causes")
    tiny = tiny_base()
    spec = TrainSpec(
        base_dir=str(tiny.dir),
        base_id="tiny-llama",
        base_sha256=tiny.sha256,
        train_shards=(str(shard(folder / "train.safetensors", ROWS)),),
        out_dir="",
        hyper=replace(HYPER, batch_size=AT_ONCE, accumulation=1, dropout=0.0),
        precision="fp32",
        threads=1,
        checkpoint_every_steps=1,
    )
    command = [sys.executable, "-m", "tests.crashes"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        yield Forks(server, spec)


def long_training(forks: Forks, folder: Path, first: str = "") -> Script:
    """A process that becomes a training which would last long. first: what it does before."""
    hyper = replace(forks.spec.hyper, n_epochs=EPOCHS)
    out = str(folder / "ck")
    spec = replace(forks.spec, hyper=hyper, out_dir=out, checkpoint_every_steps=10_000)
    (folder / "spec.json").write_bytes(encode_spec(spec))
    command = [sys.executable, "-m", "tunery.ml.train", str(folder / "spec.json")]
    return Script(events=(), then=f"{first}import os; os.execv({command[0]!r}, {command!r})")


def of(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["type"] == kind]


# --- memory
def test_cause_a_step_that_does_not_fit_is_out_of_memory_before_it_is_billed(
    forks: Forks, tmp_path: Path
) -> None:
    """The kernel refuses what the trial step on the longest rows asks for."""
    long = Forks(
        forks.server, replace(forks.spec, hyper=replace(forks.spec.hyper, n_epochs=EPOCHS))
    )
    status, events = long.attempt(tmp_path, [], None, spare_bytes=40 * MB)
    assert [event["type"] for event in events] == ["failed"], "nothing has started"
    assert (status, events[0]["cause"]) == (EXIT_OF_CAUSE["oom"], "oom")
    assert "batch_size" in events[0]["advice"]


def test_cause_memory_that_runs_out_later_goes_on_in_halves_from_the_checkpoint(
    forks: Forks, tmp_path: Path
) -> None:
    """The scheduler retries the same step in micro-batches of half the size."""
    _, whole = forks.attempt(tmp_path / "whole", [], None)
    out = tmp_path / "short"
    status, events = forks.attempt(out, [], None, spare_bytes=20 * MB, spare_from=3)
    assert (status, events[-1]["cause"]) == (EXIT_OF_CAUSE["oom"], "oom")
    assert [step["step"] for step in of(events, "step")] == [1, 2, 3]
    kept = of(events, "checkpoint")[-1]
    halves = replace(forks.spec.hyper, batch_size=AT_ONCE // 2, accumulation=2)
    smaller = Forks(forks.server, replace(forks.spec, hyper=halves))
    status, rest = smaller.attempt(out, [kept], None)
    assert (status, rest[0]["resumed_from_step"], rest[0]["skipped"]) == (0, kept["step"], [])
    losses = [step["loss"] for step in of(rest, "step")]
    expected = [step["loss"] for step in of(whole, "step")[kept["step"] :]]
    assert losses == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", kinds_here(), ids=lambda kind: kind[1])
async def test_cause_the_kernel_ends_a_training_for_lack_of_memory_and_the_agent_says_so(
    forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: tuple[Path, str]
) -> None:
    """In a control group whose memory a neighbour takes, where this machine allows to make one."""
    monkeypatch.setattr(machines, "WAIT_S_MAX", START_S_MAX)
    world = await memory_servers()
    with memory_group(kind, GROUP_BYTES) as group:
        becomes = long_training(forks, tmp_path, first=join(group))
        async with machines.node(world, tmp_path, lambda _: becomes) as here:
            await here.request("job1")
            await here.until(pool.LeaseStarted)
            with greedy_neighbour(group):
                events = await here.until(pool.MemberFreed)
            (closed,) = [event for event in events if isinstance(event, pool.PlacementClosed)]
            assert (closed.end.outcome, closed.end.cause) == ("failed", "oom")
            assert closed.end.detail is not None
            said = here.runtime.seal.open(closed.end.detail, "detail")
            # the neighbour may have been the second
            assert any(KILLED_BY_KERNEL.format(count=count) in said for count in (1, 2)), said


@pytest.mark.parametrize("kind", kinds_here(), ids=lambda kind: kind[1])
async def test_cause_the_kernel_ends_one_rank_for_lack_of_memory_and_the_agent_names_it(
    tmp_path: Path, kind: tuple[Path, str]
) -> None:
    """The second of two ranks takes more memory than its control group has."""
    world = await memory_servers()
    with memory_group(kind, RANK_BYTES) as group:
        ranks = Script(ranks=2, then=RANKS.format(join=join(group)))
        async with machines.node(world, tmp_path, lambda _: ranks) as here:
            await here.request("job1", slots=2)
            events = await here.until(pool.MemberFreed)
            (closed,) = [event for event in events if isinstance(event, pool.PlacementClosed)]
            assert (closed.end.outcome, closed.end.cause) == ("failed", "oom")
            assert closed.end.detail is not None
            said = here.runtime.seal.open(closed.end.detail, "detail")
            assert "rank 1 of 2 (process " in said
            assert KILLED_BY_KERNEL.format(count=1) in said


# --- the loss
def test_cause_a_loss_that_jumps_and_stays_up_names_its_rows(forks: Forks, tmp_path: Path) -> None:
    """Texts that are learnt by heart, and then three of another kind."""
    rows, odd = 26, 3
    path = shard(tmp_path / "jump.safetensors", rows)
    order = row_order(HYPER.seed, 0, rows)
    rewrite(path, order[-odd:])
    hyper = replace(HYPER, n_epochs=1, accumulation=1, dropout=0.0)
    spec = replace(forks.spec, train_shards=(str(path),), hyper=hyper, checkpoint_every_steps=rows)
    status, events = Forks(forks.server, spec).attempt(tmp_path / "out", [], None)
    (spike,) = of(events, "spike")
    assert (status, spike["step"]) == (0, rows), "it trains on"
    assert f"row {order[-1]} (" in spike["message"]


def rewrite(path: Path, odd: list[int]) -> None:
    """Make every row the same token over and over, but for the odd ones."""
    import torch
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    lengths, per_row = tensors["seq_lengths"], int(tensors["row_lengths"][0])
    ends = lengths.cumsum(0)[per_row - 1 :: per_row].tolist()
    for row, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if row in odd:
            tensors["input_ids"][start:end] = 9_000 + 61 * torch.arange(end - start) % 20_011
        else:
            tensors["input_ids"][start:end] = 500
    save_file(tensors, path)


# --- the node
def test_cause_a_full_disk_is_a_bad_node_and_another_node_goes_on_to_the_same_bytes(
    forks: Forks, tmp_path: Path
) -> None:
    """A file system with room for one checkpoint and a half, in a name space of its own."""
    forks.attempt(tmp_path / "whole", [], None)
    first = min((tmp_path / "whole" / "ck").glob("step-*"))
    size = sum(file.stat().st_size for file in first.iterdir())
    mount = tmp_path / "small"
    mount.mkdir()
    spec = replace(forks.spec, out_dir=str(mount / "ck"))
    (tmp_path / "spec.json").write_bytes(encode_spec(spec))
    script = (
        f'mount -t tmpfs -o size={size * 3 // 2} none "$1" && exec "$2" -m tunery.ml.train "$3"'
    )
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    arguments = [str(mount), sys.executable, str(tmp_path / "spec.json")]
    events, kept = [], tmp_path / "kept"
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            events.append(json.loads(line))
            if events[-1]["type"] == "checkpoint":  # its agent would store it elsewhere
                seen = Path(f"/proc/{process.pid}/root{events[-1]['dir']}")
                shutil.copytree(seen, kept)
    assert (process.returncode, events[-1]["cause"]) == (EXIT_OF_CAUSE["bad_node"], "bad_node")
    assert "No space left on device" in events[-1]["message"]
    (stored,) = of(events, "checkpoint")
    status, rest = forks.attempt(tmp_path / "rest", [{**stored, "dir": str(kept)}], None)
    assert (status, rest[0]["resumed_from_step"]) == (0, stored["step"])
    assert adapter(tmp_path / "rest") == adapter(tmp_path / "whole")


def without_weights(spec: TrainSpec, folder: Path) -> TrainSpec:
    (copied(spec, folder) / "model.safetensors").unlink()
    return replace(spec, base_dir=str(folder))


def with_half_of_the_weights(spec: TrainSpec, folder: Path) -> TrainSpec:
    weights = copied(spec, folder) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    return replace(spec, base_dir=str(folder))


def copied(spec: TrainSpec, folder: Path) -> Path:
    return Path(shutil.copytree(spec.base_dir, folder))


def without_a_base(spec: TrainSpec, folder: Path) -> TrainSpec:
    return replace(spec, base_dir=str(folder / "gone"))


def without_its_device(spec: TrainSpec, folder: Path) -> TrainSpec:
    return replace(spec, accelerators=99)


def with_half_a_file(spec: TrainSpec, folder: Path) -> TrainSpec:
    content = Path(spec.train_shards[0]).read_bytes()
    folder.write_bytes(content[: len(content) // 2])
    return replace(spec, train_shards=(str(folder),))


def with_other_layers(spec: TrainSpec, folder: Path) -> TrainSpec:
    return replace(spec, hyper=replace(spec.hyper, target_modules=("q_projection",)))


@pytest.mark.parametrize(
    ("broken", "cause", "words"),
    [
        (without_weights, "bad_node", "Fetch the base model again"),
        (with_half_of_the_weights, "bad_node", "Fetch the base model again"),
        (without_a_base, "bad_node", "Fetch the base model again"),
        (without_its_device, "bad_node", "check the driver of the node"),
        (with_half_a_file, "bad_data", "Prepare the dataset again"),
        (with_other_layers, "user", "q_proj"),
    ],
)
def test_cause_what_is_broken_before_the_start_is_named_and_not_billed(
    forks: Forks,
    tmp_path: Path,
    broken: Callable[[TrainSpec, Path], TrainSpec],
    cause: Any,
    words: str,
) -> None:
    spec = broken(forks.spec, tmp_path / "broken")
    status, events = Forks(forks.server, spec).attempt(tmp_path / "out", [], None)
    assert [event["type"] for event in events] == ["failed"]
    assert (status, events[0]["cause"]) == (EXIT_OF_CAUSE[cause], cause)
    assert words in events[0]["advice"]


# --- notices
def say_aws(server: Metadata) -> None:
    server.pages[ACTION] = '{"action": "terminate", "time": "2026-11-22T08:22:30Z"}'


def say_gcp(server: Metadata) -> None:
    server.pages[PREEMPTED] = "TRUE"


@pytest.mark.parametrize(
    ("cloud", "say"), [("aws", say_aws), ("gcp", say_gcp)], ids=["120 s", "30 s"]
)
async def test_cause_a_notice_of_a_cloud_ends_a_training_with_a_checkpoint_of_its_last_step(
    forks: Forks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cloud: Cloud,
    say: Callable[[Metadata], None],
) -> None:
    """A real agent, a server that answers as the cloud's, and a training that would last long."""
    monkeypatch.setattr(machines, "WAIT_S_MAX", START_S_MAX)
    becomes = long_training(forks, tmp_path)
    with metadata() as server:
        source = notices_of(cloud, server.url)
        server.pages[PREEMPTED] = "FALSE"
        world = await memory_servers()
        async with machines.node(world, tmp_path, lambda _: becomes, notices=source) as here:
            await here.request("job1")
            await here.until(pool.LeaseStarted)
            say(server)
            events = await here.until(pool.MemberFreed)
    (closed,) = [event for event in events if isinstance(event, pool.PlacementClosed)]
    assert (closed.end.outcome, closed.end.reason.code) == ("preempted", "node_noticed")
    (kept,) = sorted((tmp_path / "ck").glob("step-*"))
    steps = int(kept.name.removeprefix("step-"))
    assert 0 < steps < EPOCHS * ROWS // AT_ONCE
