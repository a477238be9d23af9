"""Nodes, as operators see them and take them out of service."""

import asyncio
from typing import Any

from msgspec.structs import replace

from schemas.node import DeviceFault, JoinNode, ReportDeviceFaults
from schemas.pool import RetireNode
from schemas.reasons import device_fault
from schemas.topics import POOL
from simulator.control_plane.samples import node
from tests.unit.services.gateway.control_plane import ControlPlane


async def known(
    api: ControlPlane, status: str, node_id: str = "a", faults: int = 0
) -> dict[str, Any]:
    """The node once it has this status and this number of faulty devices."""
    async with asyncio.timeout(180):
        while True:
            shown: dict[str, Any] = (await api.api.get(f"/v1/nodes/{node_id}")).json()
            if shown.get("status") == status and len(shown["device_faults"]) == faults:
                return shown
            await asyncio.sleep(0.01)


async def send(api: ControlPlane, body: Any) -> None:
    await api.runtime.sender.send(POOL, "default", "", body)


async def test_a_node_is_listed_from_its_registration_to_its_end(api: ControlPlane) -> None:
    registered = node("a", "a-1", 8)
    await send(api, type(registered)(node=registered.node, joins=True))
    shown = await known(api, "joining")
    assert (shown["slots"], shown["device"], shown["pool"]) == (8, "cpu", "default")
    await send(api, JoinNode(node_id="a", incarnation="a-1"))
    await known(api, "up")
    assert "a" in [entry["id"] for entry in (await api.api.get("/v1/nodes")).json()["data"]]
    refused = await api.api.delete("/v1/nodes/a")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "illegal_state")
    await send(api, RetireNode(node_id="a", incarnation="a-1"))
    await known(api, "retired")
    gone = await api.api.delete("/v1/nodes/a")
    assert gone.json() == {"id": "a", "object": "node", "deleted": True}
    assert (await api.api.get("/v1/nodes/a")).status_code == 404


async def test_orders_are_shown_at_once_and_survive_a_restart_of_the_agent(
    api: ControlPlane,
) -> None:
    await send(api, node("a", "a-1", 8))
    await known(api, "up")
    for order in ("cordon", "drain", "drain"):
        answer = await api.api.post(f"/v1/nodes/a/{order}")
        assert (answer.status_code, answer.json()["status"]) == (200, "cordoned")
        assert answer.json()["code"] == "operator"
    await send(api, node("a", "a-2", 4))
    async with asyncio.timeout(180):
        while (await known(api, "cordoned"))["slots"] != 4:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.01)
    answer = await api.api.post("/v1/nodes/a/uncordon")
    assert (answer.json()["status"], answer.json()["reason"]) == ("up", None)


async def test_security_c2_the_keys_of_a_node_are_withdrawn(api: ControlPlane) -> None:
    await send(api, node("a", "a-1", 8))
    await known(api, "up")
    for _ in range(2):
        shown = (await api.api.post("/v1/nodes/a/withdraw")).json()
        assert (shown["status"], shown["keys_withdrawn"]) == ("retired", 1)
    assert (await api.api.post("/v1/nodes/z/withdraw")).status_code == 404


async def test_nodes_are_for_operators_and_unknown_ones_are_missing(api: ControlPlane) -> None:
    client = await api.tenant()
    assert (await client.get("/v1/nodes")).status_code == 403
    assert (await client.post("/v1/nodes/a/drain")).status_code == 403
    assert (await api.api.post("/v1/nodes/z/drain")).status_code == 404


async def free_slots(api: ControlPlane, node_id: str) -> list[int]:
    """Free slots of a node in the queue's answer; empty while the queue does not list the node."""
    answer = await api.api.get("/v1/queue")
    assert answer.status_code == 200, answer.text
    return [entry["free"] for entry in answer.json()["nodes"] if entry["id"] == node_id]


async def test_devices_with_a_fault_are_shown_with_what_to_do(api: ControlPlane) -> None:
    registered = node("eight", "eight-1", 8)
    # tainted, so that no job of another test takes its slots
    described = replace(registered.node, interconnect="nvlink", taints=("faulty",))
    await send(api, replace(registered, node=described))
    shown = await known(api, "up", "eight")
    assert (shown["interconnect"], shown["device_faults"]) == ("nvlink", [])
    broken = DeviceFault(device=3, reason=device_fault("xid", xid=79))
    await send(api, ReportDeviceFaults(node_id="eight", incarnation="eight-1", faults=(broken,)))
    shown = await known(api, "up", "eight", faults=1)
    (fault,) = shown["device_faults"]
    assert (fault["device"], fault["code"]) == (3, "xid")
    assert "Xid 79" in fault["reason"]
    assert shown["slots"] == 8
    async with asyncio.timeout(180):
        while await free_slots(api, "eight") != [7]:  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.01)
    await send(api, node("eight", "eight-2", 8))
    await known(api, "up", "eight")
    await send(api, RetireNode(node_id="eight", incarnation="eight-2"))
    await known(api, "retired", "eight")
