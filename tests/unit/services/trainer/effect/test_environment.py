"""Environment of a process, read from real children as the kernel has it."""

import asyncio
import errno
import json
import os
import sys
from pathlib import Path
from signal import SIGKILL

import pytest
from msgspec.structs import replace

from schemas.training import LeaseHardware
from services.trainer.adapters.processes import ProcessGroups
from services.trainer.domain.state import Grant
from services.trainer.effect.environment import accelerators, process_environment
from tests.unit.services.trainer.domain.test_evolve import grant
from tests.unit.services.trainer.effect.launches import DEVICES, expected, launches
from tunery.ranks.launching import VISIBLE

NAMES = tuple(f"GPU-{number}" for number in range(8))
WAITS = "import time; print('ready', flush=True); time.sleep(60)"


def on_devices(*devices: int, device: str = "cuda") -> Grant:
    of_lease = grant()
    hardware = LeaseHardware(device="cuda" if device == "cuda" else "cpu")
    return replace(
        of_lease,
        lease=replace(of_lease.lease, hardware=hardware),
        member=replace(of_lease.member, slots=len(devices), devices=devices),
    )


async def environment_of_child(of_lease: Grant, folder: Path) -> dict[str, str]:
    """The environment of a real process that runs under a lease."""
    folder.mkdir(parents=True)
    launcher = ProcessGroups(folder.name)
    command = [sys.executable, "-c", WAITS]
    child = await launcher.start(command, process_environment(of_lease, NAMES), folder)
    try:
        assert await anext(child.lines()) == b"ready\n"
        entries = Path(f"/proc/{child.pid}/environ").read_bytes().decode().split("\0")
    finally:
        child.signal(SIGKILL)
        await child.wait()
    return dict(entry.split("=", 1) for entry in entries if entry)


async def test_training_m7_leases_beside_each_other_have_their_own_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding M7: every process took the first device, and failed where it saw several."""
    monkeypatch.setenv(VISIBLE, "0,1,2,3,4,5,6,7")
    first, other = await asyncio.gather(
        environment_of_child(on_devices(0), tmp_path / "first"),
        environment_of_child(on_devices(3), tmp_path / "other"),
    )
    assert (first[VISIBLE], other[VISIBLE]) == ("GPU-0", "GPU-3"), "not what the agent sees"


async def test_training_m7_a_lease_of_processors_sees_no_device(tmp_path: Path) -> None:
    of_lease = on_devices(0, device="cpu")
    assert (await environment_of_child(of_lease, tmp_path / "cpu"))[VISIBLE] == ""
    assert (accelerators(of_lease), accelerators(on_devices(1, 2))) == (0, 2)


def test_training_m7_a_device_that_the_node_does_not_have_is_a_fault_of_the_node() -> None:
    with pytest.raises(OSError, match="device 8 of the lease is none of the node's 8") as caught:
        process_environment(on_devices(7, 8), NAMES)
    assert caught.value.errno == errno.ENODEV


@pytest.mark.parametrize("nodes", [1, 4])
async def test_ranks_on_all_devices_of_nodes_are_given_what_is_written_down(
    tmp_path: Path, nodes: int
) -> None:
    """If it shall be something else: `python -m tests.unit.services.trainer.effect.launches`."""
    launched = json.loads(json.dumps(await launches(nodes, tmp_path)))
    assert launched == json.loads(expected(nodes).read_text())
    specs = {launch["node"]: launch["spec"] for launch in launched if "spec" in launch}
    ranks = [launch for launch in launched if "RANK" in launch]
    assert [rank["RANK"] for rank in ranks] == list(map(str, range(nodes * DEVICES)))
    for rank in ranks:  # it finds its own device in the spec, and among those that it sees
        own = specs[rank["node"]]["devices"][int(rank["RANK"])]
        assert rank[VISIBLE].split(",")[int(rank["LOCAL_RANK"])] == own
    assert len({rank["TUNERY_RENDEZVOUS"] for rank in ranks}) == 1
    assert all(len({*spec["devices"]}) == spec["ranks"] for spec in specs.values())


def test_a_process_knows_no_secret_of_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = ("TUNERY_S3_SECRET_KEY", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "HF_TOKEN")
    for name in (*secrets, "HTTPS_PROXY", "SOME_VENDORS_KEY"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    environment = process_environment(grant(), NAMES)
    assert "secret" not in environment.values()
    assert environment["PATH"] == os.environ["PATH"]
    assert environment["ATEN_CPU_CAPABILITY"] == "avx2", "a resume is equal only with the same"
    assert environment["HF_HUB_OFFLINE"] == "1"
