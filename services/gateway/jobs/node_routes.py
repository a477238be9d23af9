"""`/v1/nodes`, for operators: the machines that run jobs, and orders that concern them."""

from typing import Final, Literal

from schemas.envelope import Message
from schemas.node import CordonNode, DrainNode, ForgetNode, UncordonNode, WithdrawNodeKeys
from schemas.topics import POOL
from schemas.training import Device
from services.gateway.jobs.enrolment_routes import NodeInvitationResponse, invitation_response
from services.gateway.views.tables.jobs import INVITATIONS, NODES, NodeRow, NodeStatus
from services.gateway.web.deps import Admin, Deps, Principal, WithDeps
from services.gateway.web.domain.responses import (
    Deleted,
    Items,
    ListItem,
    Response,
    Seconds,
    TextOrNone,
)
from services.gateway.web.resources import Resource, all_rows, each
from services.gateway.web.routing import new_router
from services.gateway.wording import cordon_words, device_fault_words
from tunery.plan.scheduling.requests import PriceClass, price_class_of

NODES_MAX: Final = 10_000
router = new_router("nodes", "/v1/nodes")


class DeviceFaultResponse(Response):
    """Fault that excludes a device, by its number, from new jobs."""

    device: int
    code: str
    reason: str


class NodeResponse(ListItem):
    """A machine with an agent. Only a node that is `up` gets new jobs.

    `code` and `reason`: why it is cordoned. `memory_bytes`: of the machine (cpu) or of one device
    (cuda). `accelerator`: model of its devices, null: not known. `price_class`: on_demand, reserved
    (paid for in any case) or spot (it may be taken away). `warned`: its cloud says that it may soon
    take it away. `interconnect`: between its devices: nvlink, mixed (some pairs have it) or pcie,
    null: there is one, or it is not known. `device_faults`: devices that get no new jobs, while the
    others do. `taints`: only jobs that tolerate all of them get it. `domain`: of its fabric.
    `seen_at`: its last proof of life on the log, which is written every hour and when something
    changes. `keys_withdrawn`: number of its last key that is withdrawn, 0: none is.
    """

    id: str
    object: Literal["node"] = "node"
    pool: str
    status: NodeStatus
    code: str | None
    reason: str | None
    device: Device
    slots: int
    memory_bytes: int
    accelerator: TextOrNone
    price_class: PriceClass
    warned: bool
    taints: Items[str]
    domain: TextOrNone
    interconnect: TextOrNone
    device_faults: list[DeviceFaultResponse]
    registered_at: Seconds | None
    seen_at: Seconds | None
    keys_withdrawn: int


def node_response(row: NodeRow) -> NodeResponse:
    """Build the response of a node, with its reasons in words."""
    return NodeResponse.of(
        row,
        code=None if row.cordon is None else row.cordon.code,
        reason=None if row.cordon is None else cordon_words(row.cordon),
        price_class=price_class_of(spot=row.spot, reserved=row.reserved),
        warned=bool(row.warned),
        device_faults=[
            DeviceFaultResponse(
                device=fault.device, code=fault.reason.code, reason=device_fault_words(fault.reason)
            )
            for fault in row.faults
        ],
        keys_withdrawn=row.keys_withdrawn or 0,
    )


NODE: Final = Resource(
    noun="node",
    table=NODES,
    response=NodeResponse,
    respond=each(lambda _, row: node_response(row)),
    rows=all_rows,
    newest_first=False,
    limit=NODES_MAX,
    limit_max=NODES_MAX,
    param="node_id",
)
NODE.add_list(router, "", "list_nodes", "List all nodes by name.")
NODE.add_retrieve(router, "/{node_id}", "retrieve_node")


@router.post("/{node_id}/cordon")
async def cordon_node(node_id: str, deps: WithDeps, admin: Admin) -> NodeResponse:
    """Give the node no new jobs, also not after a restart of its agent. What runs continues."""
    return await _order(deps, admin, node_id, CordonNode(node_id=node_id))


@router.post("/{node_id}/uncordon")
async def uncordon_node(node_id: str, deps: WithDeps, admin: Admin) -> NodeResponse:
    """Give the node new jobs again. Jobs that failed on it before count no more."""
    return await _order(deps, admin, node_id, UncordonNode(node_id=node_id))


@router.post("/{node_id}/drain")
async def drain_node(node_id: str, deps: WithDeps, admin: Admin) -> NodeResponse:
    """Cordon the node, and let what runs there write a checkpoint and go on elsewhere."""
    return await _order(deps, admin, node_id, DrainNode(node_id=node_id))


@router.post("/{node_id}/withdraw")
async def withdraw_node_keys(
    node_id: str, deps: WithDeps, admin: Admin
) -> NodeResponse | NodeInvitationResponse:
    """Refuse all that is signed with the key that the node has, and with those before.

    Its leases end, and their jobs go on elsewhere. The node comes back with another key. Where keys
    were given for a token and no node has registered with them, the answer is the invitation.
    """
    order = WithdrawNodeKeys(node_id=node_id)
    invitation = await deps.views.first(INVITATIONS, {"id": node_id})
    if invitation is not None and await deps.views.first(NODES, {"id": node_id}) is None:
        await _decide(deps, admin, invitation.pool, order)
        withdrawn = await deps.views.first(INVITATIONS, {"id": node_id})
        return invitation_response(deps, withdrawn or invitation)
    return await _order(deps, admin, node_id, order)


@router.delete("/{node_id}")
async def forget_node(node_id: str, deps: WithDeps, admin: Admin) -> Deleted:
    """Remove a node that is lost or retired, and will not come back. Its slots are gone."""
    row = await NODE.find(deps, {}, node_id)
    await _decide(deps, admin, row.pool, ForgetNode(node_id=node_id))
    return Deleted(id=node_id, object="node")


async def _order(deps: Deps, admin: Principal, node_id: str, order: Message) -> NodeResponse:
    row = await NODE.find(deps, {}, node_id)
    await _decide(deps, admin, row.pool, order)
    return await NODE.retrieve(deps, {}, node_id)


async def _decide(deps: Deps, admin: Principal, pool: str, order: Message) -> None:
    actor = deps.seal.seal(admin.tenant, admin.key_id, "actor")
    await deps.commands.decide(POOL, pool, order, actor=actor)
