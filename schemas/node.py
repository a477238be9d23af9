"""Nodes of a pool, in the stream `pool`: how they join, leave, are seen, and are cordoned."""

from collections.abc import Iterable
from typing import Final, TypeAlias

from schemas.envelope import Message, Part, Reason
from schemas.training import Device
from schemas.units import Ms

# An accelerator, a taint or a domain, as a regular expression.
LABEL: Final = "[a-z0-9][a-z0-9._-]{0,31}"


class NodeDescription(Part):
    """A node as its agent describes it when it starts."""

    node_id: str  # its name, the same after a restart
    incarnation: str  # new at each start of the agent
    slots: int  # how many leases of one slot it can run at the same time
    device: Device  # what each slot is
    memory_bytes: int  # memory of the node (cpu) or of one device (cuda)
    accelerator: str = ""  # model of its devices as its operator calls it: "h200"; empty: unknown
    spot: bool = False  # it may be taken away at short notice, and its time may have another price
    reserved: bool = False  # its time is paid for, whether it is used or not
    taints: tuple[str, ...] = ()  # only placements that tolerate all of them get it
    domain: str = ""  # nodes of one domain are connected faster than others; empty: unknown
    scores: bool = False  # its agent asks an endpoint of the operator for the scores of graders
    # connection of its devices: "nvlink", "mixed" (some pairs have it), "pcie"; empty: unknown
    interconnect: str = ""
    # the driver's names of its devices, in the order of their numbers
    device_names: tuple[str, ...] = ()
    # it has a network that its operator trusts with the traffic of a training, so that one may be
    # on this node and on others
    fabric: bool = False
    # quota of a cluster's queue: its slots change, and a lease may wait until the cluster admits it
    elastic: bool = False
    # how long its cluster may take to admit a lease, before the pool gives it back; 0: an hour
    admission_ms_max: Ms = 0


class DeviceFault(Part):
    """Fault that excludes one device of a node from new leases; other devices are not affected."""

    device: int  # its number on the node; a slot without a device has one as well
    reason: Reason  # the fault


def working_devices(slots: int, faults: Iterable[DeviceFault]) -> frozenset[int]:
    """Numbers of the devices without a fault. slots: of the node."""
    return frozenset(range(slots)) - {fault.device for fault in faults}


class Seat(Part):
    """Slots of one node."""

    node_id: str
    slots: int


class Beneficiary(Part):
    """The waiting placement that a lease is ended for."""

    # job_id, attempt: the placement
    job_id: str
    attempt: int
    seats: tuple[Seat, ...]  # slots reserved for it alone


class IdleLease(Part):
    """A lease whose process lives, has started, and has said nothing for some time."""

    lease: int  # number of the lease
    idle_ms: Ms  # for how long


class LeaseSeen(Part):
    """A lease that an agent works on, as its last heartbeat listed it."""

    lease: int  # number of the lease
    elapsed_ms: Ms  # the agent's monotonic time since the start; 0 before it
    prepared_bytes: int = 0  # what was fetched and read for the start so far


class NodeSeen(Part):
    """Observation of a node by a heartbeat watcher."""

    # node_id, incarnation: the node that sent the heartbeats
    node_id: str
    incarnation: str
    last_seen: Ms  # broker time of the last one
    # its last heartbeat is longer ago than the TTL, though the watcher could read all the while
    silent: bool
    # leases that have made no progress for longer than an operator's limit
    idle: tuple[IdleLease, ...] = ()
    # what the last heartbeat listed; None: its agent does not report elapsed time
    leases: tuple[LeaseSeen, ...] | None = None


# --- commands
class JoinNode(Message):
    """The agent has read the pool's journal, and can take leases."""

    # node_id, incarnation: who joins
    node_id: str
    incarnation: str


class LeaveNode(Message):
    """The agent is about to leave: what it runs ends in order, and it takes nothing new."""

    # node_id, incarnation: who leaves
    node_id: str
    incarnation: str


class NoticeNode(Message):
    """A cloud announced to the agent that it takes the machine away."""

    # node_id, incarnation: whose machine
    node_id: str
    incarnation: str
    left_ms: Ms  # how long it has from now on


class WarnNode(Message):
    """A cloud warned the agent that it may soon take the machine away."""

    # node_id, incarnation: whose machine
    node_id: str
    incarnation: str


class ReportDeviceFaults(Message):
    """Report the faulty devices of a node; devices that are not listed work."""

    # node_id, incarnation: the node that has the devices
    node_id: str
    incarnation: str
    faults: tuple[DeviceFault, ...]  # one for each device that is faulty, by its number


class ResizeNode(Message):
    """The quota of an elastic node has changed."""

    # node_id, incarnation: the node
    node_id: str
    incarnation: str
    slots: int  # how many it has from now on


class CordonNode(Message):
    """An operator takes a node out of service: what runs there continues, and nothing new comes."""

    node_id: str


class UncordonNode(Message):
    """An operator puts a cordoned node back into service; failures before count no more."""

    node_id: str


class DrainNode(Message):
    """Cordon a node and let what runs there write a checkpoint and end, for an operator."""

    node_id: str


class ForgetNode(Message):
    """An operator says that a node is gone for good: whatever it still held is free."""

    node_id: str


class WithdrawNodeKeys(Message):
    """An operator says that keys of a node are in wrong hands: what they sign is refused.

    With the key `GLOBAL` it says so to a partition, also one of `account`.
    """

    node_id: str
    # number of the last withdrawn key; None: of the last key that the node registered with or got
    # for a token
    number: int | None = None


# --- events
class NodeJoined(Message):
    """The node may get leases."""

    node_id: str


class NodeLeaving(Message):
    """The node gets nothing new; what runs on it ends in order."""

    node_id: str


class NodeNoticed(Message):
    """The machine is taken away: it gets nothing new, and what runs on it moves."""

    node_id: str
    ends_at: Ms  # when it is gone


class NodeWarned(Message):
    """The machine may soon be taken away: it gets something new only where no other node fits."""

    node_id: str


class DeviceFaultsChanged(Message):
    """These devices of the node get no new leases; all others may."""

    node_id: str
    # faults in this incarnation of the node; empty: all its devices work again
    faults: tuple[DeviceFault, ...]


class NodeResized(Message):
    """An elastic node has other slots. What it runs continues, also above them."""

    node_id: str
    slots: int


class NodeCordoned(Message):
    """The node gets no new leases until it is uncordoned; also not after a restart of its agent."""

    node_id: str
    reason: Reason


class NodeUncordoned(Message):
    """The node may get leases again."""

    node_id: str


class BackOffEnded(Message):
    """The job may be placed again on nodes that failed under it, where no other node is left."""

    job_id: str
    node_ids: tuple[str, ...]


class SpotGivenUp(Message):
    """The placement gets no spot nodes any more: it would not be done in time."""

    job_id: str  # job of the placement


class SpotReconsidered(Message):
    """The time is over for which the placement was kept off spot nodes after losses."""

    job_id: str  # job of the placement
    spot: bool  # whether it may have spot nodes now
    spot_until: Ms | None = None  # when it needs another node to be done in time; None: never


class DomainGivenUp(Message):
    """The placement has waited long enough for nodes of its domain, and takes others."""

    job_id: str  # job of the placement


class ObservationsDeferred(Message):
    """Observations that did not fit into one record; later ticks process them."""

    seen: tuple[NodeSeen, ...]  # the observations


class PlanningDeferred(Message):
    """Mark whether planning has to continue at the next tick because a record was full."""

    pending: bool  # there is more to plan


class NodeForgotten(Message):
    """The node is no longer known. Its agent, if it lives after all, registers again."""

    node_id: str


class NodeKeysWithdrawn(Message):
    """Commands and heartbeats that are signed with these keys are refused from here on."""

    node_id: str  # whose keys
    number: int  # number of the last withdrawn key; all before it are withdrawn as well


NodeOrder: TypeAlias = CordonNode | UncordonNode | DrainNode | ForgetNode
NodeEvent: TypeAlias = (
    NodeJoined
    | NodeLeaving
    | NodeNoticed
    | NodeWarned
    | DeviceFaultsChanged
    | NodeResized
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
