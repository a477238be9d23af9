"""Nodes of a pool, in the stream `pool`: how they join, leave, are seen, and are cordoned."""

from collections.abc import Iterable
from typing import Final, TypeAlias

from schemas.envelope import Message, Part, Reason
from schemas.training import Device
from schemas.units import Ms

# An accelerator, a taint or a domain, as a regular expression.
LABEL: Final = "[a-z0-9][a-z0-9._-]{0,31}"


class NodeDescription(Part):
    """A node as its agent describes it when it starts.

    node_id: its name, the same after a restart.
    incarnation: new at each start of the agent.
    slots: how many leases of one slot it can run at the same time.
    device: what each slot is.
    memory_bytes: memory of the node (cpu) or of one device (cuda).
    accelerator: model of its devices as its operator calls it: "h200"; empty: not told.
    spot: it may be taken away at short notice, and its time may have another price.
    reserved: its time is paid for, whether it is used or not.
    taints: only placements that tolerate all of them get it.
    domain: nodes of one domain are connected faster than others; empty: not told.
    scores: its agent asks an endpoint of the operator for the scores of graders.
    interconnect: between its devices: "nvlink", "mixed" (some pairs have it), "pcie"; empty: not
        told.
    device_names: the driver's names of its devices, in the order of their numbers.
    """

    node_id: str
    incarnation: str
    slots: int
    device: Device
    memory_bytes: int
    accelerator: str = ""
    spot: bool = False
    reserved: bool = False
    taints: tuple[str, ...] = ()
    domain: str = ""
    scores: bool = False
    interconnect: str = ""
    device_names: tuple[str, ...] = ()


class DeviceFault(Part):
    """What keeps a device of a node from new leases, and the other devices not.

    device: its number on the node; a slot without a device has one as well.
    reason: what is wrong.
    """

    device: int
    reason: Reason


def working_devices(slots: int, faults: Iterable[DeviceFault]) -> frozenset[int]:
    """Numbers of the devices of a node with so many slots that have none of its faults."""
    return frozenset(range(slots)) - {fault.device for fault in faults}


class Seat(Part):
    """Slots of one node.

    node_id: the node.
    slots: how many.
    """

    node_id: str
    slots: int


class Beneficiary(Part):
    """The waiting placement that a lease is ended for.

    job_id, attempt: which placement.
    seats: slots that it will have; nobody else may.
    """

    job_id: str
    attempt: int
    seats: tuple[Seat, ...]


class IdleLease(Part):
    """A lease whose process lives, has started, and has said nothing for some time.

    lease: number of the lease.
    idle_ms: for how long.
    """

    lease: int
    idle_ms: Ms


class LeaseSeen(Part):
    """A lease that an agent works on, as its last heartbeat listed it.

    lease: number of the lease.
    elapsed_ms: the agent's monotonic time since the start; 0 before it.
    prepared_bytes: what was fetched and read for the start so far.
    """

    lease: int
    elapsed_ms: Ms
    prepared_bytes: int = 0


class NodeSeen(Part):
    """What a watcher of heartbeats knows about a node.

    node_id, incarnation: whose heartbeats.
    last_seen: broker time of the last one.
    silent: it is longer ago than the TTL, and the watcher itself could read all the while.
    idle: leases that have made no progress for longer than an operator's limit.
    leases: what the last heartbeat listed; None: its agent says nothing of elapsed time.
    """

    node_id: str
    incarnation: str
    last_seen: Ms
    silent: bool
    idle: tuple[IdleLease, ...] = ()
    leases: tuple[LeaseSeen, ...] | None = None


# --- commands
class JoinNode(Message):
    """The agent has read the pool's journal, and can take leases.

    node_id, incarnation: who joins.
    """

    node_id: str
    incarnation: str


class LeaveNode(Message):
    """The agent is about to leave: what it runs ends in order, and it takes nothing new.

    node_id, incarnation: who leaves.
    """

    node_id: str
    incarnation: str


class NoticeNode(Message):
    """A cloud has told the agent that it takes the machine away.

    node_id, incarnation: whose machine.
    left_ms: how long it has from now on.
    """

    node_id: str
    incarnation: str
    left_ms: Ms


class WarnNode(Message):
    """A cloud has told the agent that it may soon take the machine away.

    node_id, incarnation: whose machine.
    """

    node_id: str
    incarnation: str


class ReportDeviceFaults(Message):
    """What is wrong with the devices of a node now. What is not listed works.

    node_id, incarnation: whose devices.
    faults: one for each device that is faulty, by its number.
    """

    node_id: str
    incarnation: str
    faults: tuple[DeviceFault, ...]


class CordonNode(Message):
    """An operator takes a node out of service: what runs there goes on, and nothing new comes.

    node_id: the node.
    """

    node_id: str


class UncordonNode(Message):
    """An operator puts a cordoned node back into service; failures before count no more.

    node_id: the node.
    """

    node_id: str


class DrainNode(Message):
    """An operator empties a node: it is cordoned, and what runs there writes a checkpoint and ends.

    node_id: the node.
    """

    node_id: str


class ForgetNode(Message):
    """An operator says that a node is gone for good: whatever it still held is free.

    node_id: the node.
    """

    node_id: str


class WithdrawNodeKeys(Message):
    """An operator says that keys of a node are in wrong hands: what they sign is refused.

    With the key `GLOBAL` it says so to a partition, also one of `account`.

    node_id: the node.
    number: of the last key that is withdrawn, None: of the last key that the node registered with
        or got for a token.
    """

    node_id: str
    number: int | None = None


# --- events
class NodeJoined(Message):
    """The node may get leases.

    node_id: the node.
    """

    node_id: str


class NodeLeaving(Message):
    """The node gets nothing new; what runs on it ends in order.

    node_id: the node.
    """

    node_id: str


class NodeNoticed(Message):
    """The machine is taken away: it gets nothing new, and what runs on it moves.

    node_id: the node.
    ends_at: when it is gone.
    """

    node_id: str
    ends_at: Ms


class NodeWarned(Message):
    """The machine may soon be taken away: it gets something new only where no other node fits.

    node_id: the node.
    """

    node_id: str


class DeviceFaultsChanged(Message):
    """These devices of the node get no new leases; all others may.

    node_id: the node.
    faults: of this incarnation of the node; empty: all its devices work again.
    """

    node_id: str
    faults: tuple[DeviceFault, ...]


class NodeCordoned(Message):
    """The node gets no new leases until it is uncordoned; also not after a restart of its agent.

    node_id: the node.
    reason: why.
    """

    node_id: str
    reason: Reason


class NodeUncordoned(Message):
    """The node may get leases again.

    node_id: the node.
    """

    node_id: str


class BackOffEnded(Message):
    """The job may be placed again on nodes that failed under it, where no other node is left.

    job_id: the job.
    node_ids: the nodes.
    """

    job_id: str
    node_ids: tuple[str, ...]


class SpotGivenUp(Message):
    """The placement gets no spot nodes any more: it would not be done in time.

    job_id: whose.
    """

    job_id: str


class SpotReconsidered(Message):
    """The time is over for which the placement was kept off spot nodes after losses.

    job_id: whose.
    spot: whether it may have them now.
    spot_until: when it needs another node to be done in time; None: never.
    """

    job_id: str
    spot: bool
    spot_until: Ms | None = None


class DomainGivenUp(Message):
    """The placement has waited long enough for nodes of its domain, and takes others.

    job_id: whose.
    """

    job_id: str


class ObservationsDeferred(Message):
    """What one record could not hold: ticks go on with it.

    seen: as observed.
    """

    seen: tuple[NodeSeen, ...]


class PlanningDeferred(Message):
    """Whether one record could not hold all that can start: the next tick goes on with it.

    pending: there is more to plan.
    """

    pending: bool


class NodeForgotten(Message):
    """The node is no longer known. Its agent, if it lives after all, registers again.

    node_id: the node.
    """

    node_id: str


class NodeKeysWithdrawn(Message):
    """Commands and heartbeats that are signed with these keys are refused from here on.

    node_id: whose keys.
    number: of the last of them; all before it are withdrawn as well.
    """

    node_id: str
    number: int


NodeOrder: TypeAlias = CordonNode | UncordonNode | DrainNode | ForgetNode
NodeEvent: TypeAlias = (
    NodeJoined
    | NodeLeaving
    | NodeNoticed
    | NodeWarned
    | DeviceFaultsChanged
    | NodeCordoned
    | NodeUncordoned
    | NodeForgotten
    | NodeKeysWithdrawn
    | BackOffEnded
    | SpotGivenUp
    | SpotReconsidered
    | DomainGivenUp
    | ObservationsDeferred
    | PlanningDeferred
)
