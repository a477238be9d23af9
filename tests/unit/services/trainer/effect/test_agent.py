"""The agent against the real pool decider: leases become processes, processes become facts."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections import defaultdict
from contextlib import suppress
from itertools import chain
from pathlib import Path
from random import Random
from textwrap import indent

import msgspec
import pytest
from msgspec.structs import replace

from schemas import pool, training
from schemas.node import (
    DeviceFault,
    DeviceFaultsChanged,
    ForgetNode,
    NodeForgotten,
    NodeJoined,
    NodeLeaving,
    NodeNoticed,
    NodeResized,
    NodeWarned,
)
from schemas.reasons import device_fault
from schemas.streams import PARTITIONS
from schemas.telemetry import Heartbeat
from schemas.topics import HEARTBEATS, POOL
from services.trainer.adapters.hardware import probe
from services.trainer.adapters.health import MachineHealth
from services.trainer.adapters.nvml import DeviceWatch
from services.trainer.adapters.processes import ProcessGroups, find_marked
from services.trainer.domain.state import Grant
from services.trainer.ports import NoticesUnavailable
from tests.log_lines import logged
from tests.searches import STRAY_SEEDS
from tests.unit.services.trainer.adapters.eight_devices import EightDevices
from tests.unit.services.trainer.effect import eight_slots
from tests.unit.services.trainer.effect.machines import (
    POOL_NAME,
    WAIT_S_MAX,
    Reported,
    Script,
    node,
)
from tests.unit.tunery.runtime.strays import tasks_called
from tests.unit.tunery.work.samples import STARTED
from tunery.platform.memory_servers import MemoryServers, memory_servers
from tunery.ranks.launching import VISIBLE
from tunery.runtime.blobs.abstract import BlobMissing
from tunery.runtime.telemetry.trail import Trail, trail_context
from tunery.work.codec import encode_event
from tunery.work.events import Failed

SLEEPS = "time.sleep(60)"
DRAINS = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
time.sleep(60)
"""
STUBBORN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(60)
"""


def only(events: list[object], kind: type) -> object:
    """The only event of a kind."""
    matching = [event for event in events if isinstance(event, kind)]
    assert len(matching) == 1, matching
    return matching[0]


async def test_an_agent_says_what_its_settings_say_of_the_node(tmp_path: Path) -> None:
    async with node(await memory_servers(), tmp_path, lambda _: Script()) as here:
        registered = only(await here.until(pool.NodeRegistered), pool.NodeRegistered)
    assert isinstance(registered, pool.NodeRegistered)
    described = registered.node
    assert (described.accelerator, described.spot, described.reserved) == ("h200", True, False)
    assert (described.taints, described.domain) == (("eu", "research"), "rack-3")


async def test_a_lease_is_run_reported_and_freed(tmp_path: Path) -> None:
    async with node(await memory_servers(), tmp_path, lambda _: Script()) as here:
        await here.request("job1")
        events = await here.until(pool.MemberFreed)
    started, closed = only(events, pool.LeaseStarted), only(events, pool.PlacementClosed)
    assert isinstance(started, pool.LeaseStarted)
    assert started.start.total_steps == 3
    on_spot = training.LeaseHardware(device="cpu", accelerator="h200", spot=True)
    assert started.lease.hardware == on_spot  # as the node's settings say
    assert isinstance(closed, pool.PlacementClosed)
    assert closed.end.outcome == "succeeded"
    assert isinstance(closed.end.result, training.EvalResult)
    assert not (tmp_path / "1").exists()


@pytest.mark.parametrize(
    ("script", "cause", "words"),
    [
        (
            Script(
                events=(STARTED, Failed(cause="divergence", message="NaN", advice="Less.")),
                then="sys.exit(66)",
            ),
            "divergence",
            "NaN Less.",
        ),
        (Script(then="sys.stderr.write('lost my way'); sys.exit(3)"), "platform", "lost my way"),
        (Script(failure=BlobMissing("t/acme/x")), "platform", "no blob t/acme/x"),
        (Script(events=(), lines=("not JSON",)), "platform", "JSON"),
        (Script(events=(), lines=('{"no": "type"}',), then=SLEEPS), "platform", "type"),
        (Script(failure=RuntimeError("w" * 1_000_000)), "platform", "www"),
    ],
)
async def test_failures_are_reported_with_cause_and_message(
    tmp_path: Path, script: Script, cause: str, words: str
) -> None:
    async with node(await memory_servers(), tmp_path, lambda _: script) as here:
        await here.request("job1")
        events = await here.until(pool.MemberFreed)
        closed = only(events, pool.PlacementClosed)
        assert isinstance(closed, pool.PlacementClosed)
        assert (closed.end.outcome, closed.end.cause) == ("failed", cause)
        assert closed.end.detail is not None
        assert words in here.runtime.seal.open(closed.end.detail, "detail")


async def test_a_drained_process_may_exit_by_itself(tmp_path: Path) -> None:
    async with node(await memory_servers(), tmp_path, lambda _: Script(then=DRAINS)) as here:
        await here.request("job1")
        await here.until(pool.LeaseStarted)
        await here.close("job1", "drain")
        events = await here.until(pool.MemberFreed)
    closed = only(events, pool.PlacementClosed)
    assert isinstance(closed, pool.PlacementClosed)
    assert closed.end.outcome == "preempted"


async def test_kill_ends_a_process_that_ignores_sigterm(tmp_path: Path) -> None:
    async with node(await memory_servers(), tmp_path, lambda _: Script(then=STUBBORN)) as here:
        await here.request("job1")
        await here.until(pool.LeaseStarted)
        await here.close("job1", "kill")
        await here.until(pool.MemberFreed)
    assert await ProcessGroups(str(tmp_path)).sweep() == 0


async def test_heartbeats_list_each_lease_with_its_elapsed_time(tmp_path: Path) -> None:
    """Finding A1: it is what a lease is billed by."""
    async with node(await memory_servers(), tmp_path, lambda _: Script(then=SLEEPS)) as here:
        await here.request("job1")
        await here.until(pool.LeaseStarted)
        log = here.runtime.log
        reader = await log.reader(HEARTBEATS.name, dict.fromkeys(range(PARTITIONS), 0))
        elapsed_ms: tuple[int, ...] = ()
        while not any(elapsed_ms):
            for record in await reader.poll(1_000, 100):
                beat = msgspec.json.decode(record.value, type=Heartbeat)
                assert len(beat.elapsed_ms) == len(beat.leases)
                elapsed_ms = beat.elapsed_ms
        await reader.close()
        assert beat.leases == (1,)


PRINTS = """
while True:
    print('{"type": "scoring_progress", "stage": "items", "done": 1, "total": 2}', flush=True)
    time.sleep(0.05)
"""


async def test_a_frozen_process_is_stopped_while_its_agent_lives(tmp_path: Path) -> None:
    """SIGSTOP: it lives, its agent's heartbeats go on, and nothing comes out of it any more."""
    script = Script((replace(STARTED, total_steps=0),), then=PRINTS)
    scripts = {"job1": script, "job2": script}
    async with node(await memory_servers(), tmp_path, lambda grant: scripts[grant.job_id]) as here:
        await here.request("job1")
        await here.request("job2")
        await here.until(pool.LeaseStarted, count=2)
        (frozen,) = _processes(tmp_path / "1")
        os.kill(frozen, signal.SIGSTOP)
        events = await here.until(pool.MemberFreed)
        closed = only(events, pool.PlacementClosed)
        assert isinstance(closed, pool.PlacementClosed)
        assert (closed.job_id, closed.end.outcome, closed.end.cause) == (
            "job1",
            "failed",
            "bad_node",
        )
        assert not _processes(tmp_path / "1")
        assert not any(isinstance(event, pool.NodeLost) for event in events)
        assert _processes(tmp_path / "2")  # the one that prints goes on


def _processes(folder: Path) -> list[int]:
    """Ids of the processes that run in a folder."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if (entry / "cwd").readlink() == folder:
                    pids.append(int(entry.name))
    return pids


#: every task of an agent that lives as long as the agent, or as one of its leases
AGENT_TASKS = ("agent ", "lease ", "work of lease ", "report of lease ")
STRAYS = 6


@pytest.mark.parametrize("seed", STRAY_SEEDS.beginnings(1))
async def test_lease_ends_and_heartbeats_go_on_after_stray_cancellations(
    tmp_path: Path, seed: int
) -> None:
    rng, there = Random(seed), await memory_servers()
    async with node(there, tmp_path, lambda _: Script(then="time.sleep(0.5)")) as here:
        await here.request("job1")
        for _ in range(STRAYS):
            await asyncio.sleep(rng.uniform(0, 0.2))
            if cancellable := tasks_called(*AGENT_TASKS):
                rng.choice(cancellable).cancel()
        events = await here.until(pool.MemberFreed)
        closed = only(events, pool.PlacementClosed)
        assert isinstance(closed, pool.PlacementClosed)
        assert (closed.end.outcome, closed.end.cause) in {
            ("succeeded", None),
            ("failed", "platform"),
            ("not_started", None),
        }
        before = await _heartbeats(there)
        async with asyncio.timeout(WAIT_S_MAX):
            while await _heartbeats(there) <= before:  # noqa: ASYNC110  # a log has no event to wait for
                await asyncio.sleep(0.02)
        await here.request("job2")
        events = await here.until(pool.MemberFreed, count=2)
        assert [e.end.outcome for e in events if isinstance(e, pool.PlacementClosed)][1:] == [
            "succeeded"
        ]
        assert not _processes(tmp_path / "1")


async def _heartbeats(servers: MemoryServers) -> int:
    """How many there were."""
    ends = [(await servers.log.bounds(HEARTBEATS.name, number))[1] for number in range(PARTITIONS)]
    return sum(ends)


async def test_an_orderly_stop_drains_leases_and_retires_the_node(tmp_path: Path) -> None:
    there = await memory_servers()
    async with node(there, tmp_path, lambda _: Script(then=DRAINS)) as here:
        await here.request("job1")
        await here.until(pool.LeaseStarted)
    async with node(there, tmp_path, lambda _: Script()) as again:
        events = await again.until(pool.NodeRetired)
    assert any(
        isinstance(event, pool.PlacementClosed) and event.end.outcome == "preempted"
        for event in events
    )


async def test_sched_a16_an_agent_that_leaves_says_so_before_it_frees_a_slot(
    tmp_path: Path,
) -> None:
    """Finding A16: freed slots were granted to an agent that was about to end."""
    there = await memory_servers()
    async with node(there, tmp_path, lambda _: Script(then=DRAINS)) as here:
        for job_id in ("job1", "job2", "job3"):
            await here.request(job_id)
        await here.until(pool.LeaseStarted, count=2)
    async with node(there, tmp_path, lambda _: Script()) as again:
        events = await again.until(pool.LeaseGranted, count=3)
    kinds = [type(event) for event in events]
    left, retired = kinds.index(NodeLeaving), kinds.index(pool.NodeRetired)
    assert left < kinds.index(pool.MemberFreed) < retired
    assert pool.LeaseGranted not in kinds[left:retired]
    assert kinds.count(NodeJoined) == 2


async def test_a_node_that_was_forgotten_and_lives_registers_again(tmp_path: Path) -> None:
    async with node(await memory_servers(), tmp_path, lambda _: Script()) as here:
        registered = only(await here.until(pool.NodeRegistered), pool.NodeRegistered)
        assert isinstance(registered, pool.NodeRegistered)
        incarnation = registered.node.incarnation
        retire = pool.RetireNode(node_id="a", incarnation=incarnation)
        for command in (retire, ForgetNode(node_id="a")):
            await here.runtime.sender.send(POOL, POOL_NAME, "", command)
        events = await here.until(NodeJoined, count=2)
        assert NodeForgotten in {type(event) for event in events}
        await here.request("job1")
        await here.until(pool.MemberFreed)


async def test_sched_a9_a_broken_machine_is_reported_as_a_bad_node(tmp_path: Path) -> None:
    scripts = {
        "job1": Script(failure=OSError(errno.ENOSPC, "No space left on device")),
        "job2": Script(then="sys.stderr.write('CUDA error: uncorrectable ECC error'); sys.exit(1)"),
    }
    async with node(await memory_servers(), tmp_path, lambda grant: scripts[grant.job_id]) as here:
        for job_id in scripts:
            await here.request(job_id)
        events = await here.until(pool.PlacementClosed, count=2)
    ends = [event.end for event in events if isinstance(event, pool.PlacementClosed)]
    assert [(end.cause, end.ended_by) for end in ends] == [("bad_node", "node")] * 2


async def test_training_m11_a_real_kill_from_outside_is_no_lack_of_memory(tmp_path: Path) -> None:
    """Finding M11: counted by the kernel of this machine, which killed nothing meanwhile."""
    killed = Script(then="import os; os.kill(os.getpid(), signal.SIGKILL)")
    async with node(await memory_servers(), tmp_path, lambda _: killed) as here:
        await here.request("job1")
        events = await here.until(pool.PlacementClosed)
    closed = only(events, pool.PlacementClosed)
    assert isinstance(closed, pool.PlacementClosed)
    assert (closed.end.outcome, closed.end.cause) == ("failed", "platform")
    assert closed.end.detail is not None
    assert "nor the kernel killed it" in here.runtime.seal.open(closed.end.detail, "detail")


async def test_two_leases_run_beside_each_other(tmp_path: Path) -> None:
    scripts = {"job1": Script(then=DRAINS), "job2": Script()}
    async with node(await memory_servers(), tmp_path, lambda grant: scripts[grant.job_id]) as here:
        await here.request("job1")
        await here.until(pool.LeaseStarted)
        await here.request("job2")
        events = await here.until(pool.MemberFreed)
    freed = only(events, pool.MemberFreed)
    assert isinstance(freed, pool.MemberFreed)
    assert freed.lease.token.lease == 2


class Noticed:
    """A cloud that does not answer at first, and then takes the machine away."""

    def __init__(self) -> None:
        self.answers: list[int | None] = [None, None, 30_000]
        self.warns = False

    async def left_ms(self) -> int | None:
        if len(self.answers) == 2:
            self.answers.pop(0)
            raise NoticesUnavailable("no route to host")
        return self.answers.pop(0)

    async def is_at_risk(self) -> bool:
        return self.warns

    async def close(self) -> None:
        """Nothing to close."""


async def test_a_rebalance_warning_is_reported_to_the_pool_once(tmp_path: Path) -> None:
    cloud = Noticed()
    cloud.answers, cloud.warns = [*(None for _ in range(8)), 30_000], True
    async with node(await memory_servers(), tmp_path, lambda _: Script(), notices=cloud) as here:
        events = await here.until(NodeNoticed)
    assert len([event for event in events if isinstance(event, NodeWarned)]) == 1


async def test_a_notice_moves_what_runs_and_the_node_gets_nothing_new(tmp_path: Path) -> None:
    cloud, world = Noticed(), await memory_servers()
    async with node(world, tmp_path, lambda _: Script(then=DRAINS), notices=cloud) as here:
        await here.until(NodeNoticed)
        await here.request("job1")
        events = await here.until(pool.PlacementQueued)
    assert cloud.answers == []
    assert not any(isinstance(event, pool.LeaseGranted) for event in events)


async def test_what_runs_when_the_notice_comes_is_drained(tmp_path: Path) -> None:
    cloud = Noticed()
    cloud.answers = [*(None for _ in range(32)), 30_000]
    world = await memory_servers()
    async with node(world, tmp_path, lambda _: Script(then=DRAINS), notices=cloud) as here:
        await here.request("job1")
        events = await here.until(pool.MemberFreed)
    closed = only(events, pool.PlacementClosed)
    assert isinstance(closed, pool.PlacementClosed)
    assert (closed.end.outcome, closed.end.ended_by) == ("preempted", "node")
    assert closed.end.reason.code == "node_noticed"


async def test_an_attempt_follows_from_the_request_that_submitted_its_job(tmp_path: Path) -> None:
    with logged("trainer") as lines:
        async with node(await memory_servers(), tmp_path, lambda _: Script()) as here:
            for job_id, request in (("job1", "req_1"), ("job2", "req_2"), ("job3", "req_3")):
                with trail_context(Trail(request)):
                    await here.request(job_id)
            await here.until(pool.MemberFreed, count=3)  # one began as slots became free
    ended = {line["job_id"]: line["request_id"] for line in lines.of("attempt.ended")}
    assert ended == {"job1": "req_1", "job2": "req_2", "job3": "req_3"}
    decided = {line["events"] for line in lines.of("decision.settled")}
    assert "MemberFreed" in decided, "what the agent reports follows from the request, too"


async def test_devices_that_break_end_their_lease_and_the_other_slot_goes_on(
    tmp_path: Path,
) -> None:
    health = Reported((DeviceFault(device=0, reason=device_fault("throttled")),))
    world = await memory_servers()
    async with node(world, tmp_path, lambda _: Script(then=SLEEPS), health=health) as here:
        events = await here.until(NodeJoined)
        order = [type(event) for event in events]
        assert order.index(DeviceFaultsChanged) < order.index(NodeJoined), "before any lease"
        await here.request("job1")
        started = only(await here.until(pool.LeaseStarted), pool.LeaseStarted)
        assert isinstance(started, pool.LeaseStarted)
        health.now = (DeviceFault(device=1, reason=device_fault("ecc")),)
        events = await here.until(pool.MemberFreed)
        closed = only(events, pool.PlacementClosed)
        assert isinstance(closed, pool.PlacementClosed)
        assert (closed.end.cause, closed.end.reason.code) == ("bad_node", "device_failed")
        assert await ProcessGroups(str(tmp_path)).sweep() == 0, "it was killed"
        await here.request("job2")
        granted = [
            e for e in await here.until(pool.LeaseStarted, 2) if type(e) is pool.LeaseGranted
        ]
        assert [lease.members[0].devices for lease in granted] == [(1,), (0,)]


BREAKS = """
import os
if os.path.exists({flag!r}):
    if os.environ["RANK"] == "0":
        sys.exit(76)
    print({failed!r}, flush=True)
    sys.exit(72)
time.sleep(0.05)
"""
DRIVER_S = 0.5  # until it says what its device's process has noticed


async def test_devices_that_break_under_a_rank_end_their_lease_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process says so first, and the driver some time later: the node is not blamed for it."""
    driver = EightDevices().install(monkeypatch)
    hardware, flag = probe(), tmp_path / "broken"
    watch = DeviceWatch(hardware.device_names)
    watch.start()
    health = MachineHealth(8, tmp_path, 0, watch)
    failed = Failed(cause="bad_node", message="CUDA error: uncorrectable ECC error", advice="")
    text = encode_event(failed, 0).decode()
    breaks = f"while True:\n{indent(BREAKS.format(flag=str(flag), failed=text), '    ')}"

    def script(grant: Grant) -> Script:
        return Script(then=breaks if grant.job_id == "job2" else SLEEPS, ranks=grant.slots)

    world = await memory_servers()
    async with node(world, tmp_path, script, health=health, hardware=hardware) as here:
        await here.request("job1", slots=4, device="cuda")
        await here.until(pool.LeaseStarted)
        await here.request("job2", slots=2, device="cuda")
        await here.until(pool.LeaseStarted, 2)
        flag.touch()
        await asyncio.sleep(DRIVER_S)
        driver.xids.append((5, 79))  # its second device has fallen off the bus
        events = await here.until(pool.MemberFreed)
        closed = only(events, pool.PlacementClosed)
        assert isinstance(closed, pool.PlacementClosed)
        assert (closed.job_id, closed.end.cause) == ("job2", "bad_node")
        assert closed.end.reason.code == "device_failed"
        changed = only(events, DeviceFaultsChanged)
        assert isinstance(changed, DeviceFaultsChanged)
        assert [fault.device for fault in changed.faults] == [5]
        await here.request("job3", slots=3, device="cuda")
        granted = [
            e for e in await here.until(pool.LeaseStarted, 3) if type(e) is pool.LeaseGranted
        ]
        assert [lease.members[0].devices for lease in granted] == [(0, 1, 2, 3), (4, 5), (4, 6, 7)]


def visible_of(pids: set[int]) -> list[list[str]]:
    """The devices that the processes of each lease were given, as the kernel knows them.

    One for each process; those of a lease work in one folder.
    """
    visible: dict[Path, list[str]] = defaultdict(list)
    for pid in sorted(pids):
        entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        values = dict(entry.split("=", 1) for entry in entries if "=" in entry)
        visible[Path(f"/proc/{pid}/cwd").readlink()].append(values[VISIBLE])
    return sorted(visible.values(), key=len)


def start_eight(folder: Path) -> "subprocess.Popen[str]":
    """An agent of its own process, once its leases of 1, 2 and 4 slots have begun."""
    command = [sys.executable, "-m", eight_slots.__name__, str(folder)]
    agent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    assert agent.stdout.readline() == eight_slots.READY
    return agent


def kill(agent: "subprocess.Popen[str]") -> None:
    agent.kill()
    agent.wait()
    assert agent.stdout is not None
    agent.stdout.close()


def assert_disjoint(pids: set[int]) -> None:
    """Assert that processes of a lease see as many devices as they are, and other leases others."""
    leases = visible_of(pids)
    assert [*map(len, leases)] == [1, 2, 4]
    seen = [{*chain(*(each.split(",") for each in values))} for values in leases]
    assert [*map(len, seen)] == [1, 2, 4]
    assert set.union(*seen) < {state.name for state in EightDevices().states}
    assert len(set.union(*seen)) == 7


@pytest.mark.timeout(500)
async def test_devices_of_children_are_disjoint_also_after_their_agent_was_killed(
    tmp_path: Path,
) -> None:
    """Leases of 1, 2 and 4 slots beside each other, read from /proc; then SIGKILL, and again.

    Each of their seven processes sees the devices of its lease, and no other one.
    """
    first = start_eight(tmp_path)
    orphans = find_marked(str(tmp_path))
    try:
        assert_disjoint(orphans)
        kill(first)
        assert find_marked(str(tmp_path)) == orphans, "they outlive their agent"
        second = start_eight(tmp_path)
        try:
            alive = find_marked(str(tmp_path))
            assert not alive & orphans
            assert_disjoint(alive)
        finally:
            kill(second)
    finally:
        kill(first)
        await ProcessGroups(str(tmp_path)).sweep()


async def test_a_quota_that_changes_resizes_the_node(tmp_path: Path) -> None:
    slots: list[int | None] = [40, None, 40, 0]

    async def quota() -> int | None:
        return slots.pop(0) if len(slots) > 1 else slots[0]

    async with node(await memory_servers(), tmp_path, lambda _: Script(), quota=quota) as here:
        events = await here.until(NodeResized, 2)
        registered = only(events, pool.NodeRegistered)
        assert isinstance(registered, pool.NodeRegistered)
        assert registered.node.elastic
        resized = [event.slots for event in events if isinstance(event, NodeResized)]
        assert resized == [40, 0]
