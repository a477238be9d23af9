"""What agents give each rank of a lease, as the ranks see it: run to write what tests expect.

    python -m tests.unit.services.trainer.effect.launches

Each node has the eight devices of a driver of the tests, and its agent starts ranks as ever; but
what it starts says what it was given, and ends.
"""

import asyncio
import dataclasses
import json
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from msgspec.structs import replace

from schemas import pool
from schemas.training import LeaseHardware
from services.trainer.adapters.hardware import probe
from services.trainer.adapters.processes import ProcessGroups
from services.trainer.effect.environment import process_environment
from services.trainer.effect.gang import Gang
from services.trainer.effect.program import Tools
from services.trainer.effect.reports import Reports
from services.trainer.effect.training import Training
from tests.unit.services.trainer.adapters.eight_devices import EightDevices
from tests.unit.services.trainer.domain.test_evolve import grant
from tests.unit.services.trainer.effect.machines import settings
from tests.unit.services.trainer.effect.test_training import CONTENT, WORK
from tunery.platform.memory_servers import memory_servers
from tunery.ranks.launching import RENDEZVOUS, VISIBLE
from tunery.work.codec import decode_train_spec

DEVICES: Final = 8
EXPECTED: Final = Path(__file__).with_name("launches")
STORE: Final = "tcp://192.0.2.1:29500"
SAID: Final = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", RENDEZVOUS),
    *("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", VISIBLE, "CUDA_DEVICE_ORDER"),
)
QUOTED: Final = " ".join(f'"${name}"' for name in SAID)
SAYS: Final = f'printf "%s\\n" {QUOTED} "$@" >&2'
Launch = dict[str, Any]


async def launches(nodes: int, folder: Path) -> list[Launch]:
    """For each node the part of the spec that is about ranks, then what each rank is given."""
    members = tuple(
        pool.LeaseMember(
            node_id=f"node-{at}",
            incarnation=f"i{at}",
            slots=DEVICES,
            devices=tuple(range(DEVICES)),
        )
        for at in range(nodes)
    )
    every: list[Launch] = []
    for at in range(nodes):
        (folder / members[at].node_id).mkdir()
        every += await _launches_of(members, at, folder / members[at].node_id)
    return every


async def _launches_of(
    members: tuple[pool.LeaseMember, ...], at: int, folder: Path
) -> list[Launch]:
    """What the agent of one member gives its ranks."""
    driver = EightDevices()
    for state in driver.states:
        state.name = f"GPU-{at}{state.name.removeprefix('GPU-')}"
    with pytest.MonkeyPatch.context() as patch:
        driver.install(patch)
        hardware = probe()
    work = replace(WORK, prepared=replace(WORK.prepared, train_sha256=sha256(CONTENT).hexdigest()))
    lease = grant(DEVICES, role="train", work=work)
    lease = replace(
        lease,
        lease=replace(lease.lease, hardware=LeaseHardware(device="cuda")),
        member=members[at],
        members=members,
        placement=replace(lease.placement, slots=len(members) * DEVICES),
    )
    servers = await memory_servers()
    await servers.blobs.put(WORK.prepared.train_blob, CONTENT)
    runtime, launcher = servers.runtime("trainer"), ProcessGroups(mark=str(folder))
    reports = Reports(runtime, "default")
    tools = Tools(runtime, launcher, reports, f"i{at}", lambda: None)
    tools = dataclasses.replace(tools, device_names=hardware.device_names)
    training = Training(lease, work, tools, settings(folder))
    try:
        arguments = await training.prepare(folder)
        environment = process_environment(lease, tools.device_names)
        command = ("/bin/sh", "-c", SAYS, "rank", *arguments)
        access = training.access
        if training.gang is not None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(training.gang), "store", _store)
                access = await training.gang.placed(access)
        group = await launcher.start(command, environment, folder, access)
        assert await group.wait() == 0, group.error_tail()
    finally:
        await training.close()
    spec = decode_train_spec((folder / "spec.json").read_bytes())
    named = {"ranks": spec.ranks, "accelerators": spec.accelerators, "devices": spec.devices}
    first = at * DEVICES
    errors = ("stderr.log", *(f"{first + other}.stderr.log" for other in range(1, DEVICES)))
    node_id = members[at].node_id
    said = [{"node": node_id, **_said(folder / name, folder)} for name in errors]
    return [{"node": node_id, "spec": named}, *said]


async def _store(_: Gang) -> str:
    return STORE


def _said(path: Path, folder: Path) -> Launch:
    """What a rank was given, by its own word."""
    said = path.read_text().replace(str(folder), "FOLDER").splitlines()
    _, module, spec = said[len(SAID) :]
    return {"module": module, "spec_file": spec, **dict(zip(SAID, said, strict=False))}


def expected(nodes: int) -> Path:
    """Environment file of ranks on the devices of several nodes."""
    return EXPECTED / f"{nodes}x{DEVICES}.json"


async def write() -> None:
    """Write what is given now. Compare it before it is kept."""
    for nodes in (1, 4):
        with TemporaryDirectory() as folder:
            launched = await launches(nodes, Path(folder))
        EXPECTED.mkdir(exist_ok=True)
        lines = ",\n ".join(json.dumps(launch) for launch in launched)
        expected(nodes).write_text(f"[{lines}]\n")


if __name__ == "__main__":
    asyncio.run(write())
