"""An independent account of nodes: who may have leases, enrol, and sign."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from schemas.enrolment import (
    EnrolNode,
    InvitationRevoked,
    NodeEnrolled,
    NodeInvited,
    NodeKeysSealed,
)
from schemas.envelope import Rejected, Repeated
from schemas.node import (
    DeviceFaultsChanged,
    NodeCordoned,
    NodeForgotten,
    NodeKeysWithdrawn,
    NodeUncordoned,
)
from schemas.pool import LeaseGranted, NodeRegistered
from schemas.streams import key_number_of, node_of
from schemas.units import Ms


@dataclass
class NodeBook:
    """Known state of one node. public_key: the key enrolled with the last token."""

    cordoned: bool = False
    faulty: frozenset[int] = frozenset()
    token: str | None = None
    expires_at: Ms = 0
    public_key: str | None = None
    withdrawn: int = 0
    uses_left: int = 0  # of a token for several nodes


@dataclass
class NodeBooks:
    """Entered decision by decision; `violations` is what did not hold."""

    violations: list[str] = field(default_factory=list)
    _nodes: dict[str, NodeBook] = field(default_factory=lambda: defaultdict(NodeBook))

    def enter(self, sender: str | None, command: Any, events: tuple[Any, ...], at: Ms) -> None:
        """One decision of the pool, with the principal that sent its command."""
        node_id = None if sender is None else node_of(sender)
        done = [event for event in events if not isinstance(event, Rejected | Repeated)]
        if sender is not None and node_id is not None:
            is_withdrawn = key_number_of(sender) <= self._nodes[node_id].withdrawn
            if is_withdrawn and done:
                self._say("withdrawn", f"{sender} leads to {done}")
        for event in events:
            self._enter(command, event, at)

    def _enter(self, command: Any, event: Any, at: Ms) -> None:
        match event:
            case NodeCordoned():
                self._nodes[event.node_id].cordoned = True
            case NodeUncordoned():
                self._nodes[event.node_id].cordoned = False
            case NodeForgotten():
                known = self._nodes[event.node_id]
                known.cordoned, known.faulty = False, frozenset()
            case NodeRegistered():
                self._nodes[event.node.node_id].faulty = frozenset()
            case DeviceFaultsChanged():
                faults = frozenset(fault.device for fault in event.faults)
                self._nodes[event.node_id].faulty = faults
            case LeaseGranted():
                self._grant(event)
            case NodeInvited():
                if event.invitation is not None:
                    self._join(command, event, at)
                known = self._nodes[event.node_id]
                known.token, known.public_key = event.token_sha256, None
                known.expires_at, known.uses_left = event.expires_at, event.nodes_max or 0
            case InvitationRevoked():
                self._nodes[event.node_id].expires_at = at
            case NodeEnrolled():
                self._enrol(command, event, at)
            case NodeKeysSealed():
                if event.public_key != self._nodes[event.node_id].public_key:
                    self._say("enrolment", f"{event} is for another public key")
            case NodeKeysWithdrawn():
                self._nodes[event.node_id].withdrawn = event.number
            case _:
                pass

    def _grant(self, event: LeaseGranted) -> None:
        for member in event.members:
            known = self._nodes[member.node_id]
            if known.cordoned:
                self._say("cordon", f"{member.node_id} gets lease {event.lease.token.lease}")
            if broken := known.faulty & {*member.devices}:
                self._say("device", f"{member} has devices {sorted(broken)}, which are faulty")

    def _join(self, command: Any, event: NodeInvited, at: Ms) -> None:
        several = self._nodes[event.invitation or ""]
        shown = command.token_sha256 if isinstance(command, EnrolNode) else None
        if shown != several.token or at >= several.expires_at or several.uses_left < 1:
            self._say("enrolment", f"{command} joins by {several}")
        if self._nodes[event.node_id].public_key is not None:
            self._say("enrolment", f"{event} is for a node that has keys")
        several.uses_left -= 1

    def _enrol(self, command: Any, event: NodeEnrolled, at: Ms) -> None:
        known = self._nodes[event.node_id]
        shown = command.token_sha256 if isinstance(command, EnrolNode) else None
        if shown != known.token or at >= known.expires_at or known.public_key is not None:
            self._say("enrolment", f"{command} is let in by {known}")
        if event.key_number != known.withdrawn + 1:
            self._say("enrolment", f"{event} gets keys, of which {known.withdrawn} are withdrawn")
        known.public_key = event.public_key

    def _say(self, invariant: str, text: str) -> None:
        self.violations.append(f"{invariant}: {text}")
