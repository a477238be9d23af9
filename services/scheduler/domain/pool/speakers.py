"""An agent speaks for its own nodes alone: for their registration, and for leases on them."""

from schemas import errors
from schemas.envelope import Rejected
from schemas.lease_keys import RequestLeaseKeys
from schemas.node import (
    JoinNode,
    LeaveNode,
    NoticeNode,
    ReportDeviceFaults,
    ResizeNode,
    WarnNode,
)
from schemas.pool import (
    Command,
    ConfirmFreed,
    RegisterNode,
    ReportCheckpoint,
    ReportExit,
    ReportRendezvous,
    ReportStarted,
    ReportWait,
    RetireNode,
)
from schemas.reasons import refusing
from schemas.streams import agent_of, node_of
from services.scheduler.domain.pool.state import Pool, lease_key


def refuse_other_node(pool: Pool, command: Command, sender: str | None) -> Rejected | None:
    """The refusal when a node speaks for another one; None when anything else is the case."""
    agent = None if sender is None else node_of(sender)
    if sender is None or agent is None:
        return None
    named = _named_node(pool, command)
    if named is None or agent_of(named) == agent:
        return None
    other = refusing("sender_not_node", sender=sender, node_id=named)
    return Rejected(code=errors.SENDER_REFUSED, reason=other)


def _named_node(pool: Pool, command: Command) -> str | None:
    """The node that a command speaks for; None: of none that is known."""
    match command:
        case RegisterNode():
            return command.node.node_id
        case JoinNode() | LeaveNode() | NoticeNode() | WarnNode() | ReportDeviceFaults():
            return command.node_id
        case RetireNode() | ConfirmFreed() | ResizeNode():
            return command.node_id
        case (
            ReportRendezvous() | ReportWait() | ReportStarted() | ReportCheckpoint() | ReportExit()
        ):
            return _holder(pool, command.token.lease, command.incarnation)
        case RequestLeaseKeys():
            return _holder(pool, command.lease, command.incarnation)
        case _:
            return None


def _holder(pool: Pool, number: int, incarnation: str) -> str | None:
    """The node on which an agent has a member of a lease."""
    lease = pool.leases.get(lease_key(number))
    members = () if lease is None else lease.members
    return next((m.node_id for m in members if m.incarnation == incarnation), None)
