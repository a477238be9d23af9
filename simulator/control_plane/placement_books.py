"""An independent account of where leases go: domains, spot nodes, warnings, drains, nodes that end.

It reads accepted events of the pool and the commands that they decide.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from schemas.envelope import Repeated, Tick
from schemas.node import (
    DeviceFaultsChanged,
    DomainGivenUp,
    DrainNode,
    NodeCordoned,
    NodeDescription,
    NodeForgotten,
    NodeJoined,
    NodeLeaving,
    NodeNoticed,
    NodeResized,
    NodeUncordoned,
    NodeWarned,
    SpotGivenUp,
    SpotReconsidered,
    WarnNode,
)
from schemas.pool import (
    LeaseDraining,
    LeaseGranted,
    LeaseKilled,
    NodeLost,
    NodeRegistered,
    NodeRetired,
    NodesObserved,
    Placement,
    PlacementClosed,
    PlacementQueued,
)
from schemas.training import LeaseHardware, NodeConstraints
from schemas.units import DAY_MS, HOUR_MS, Ms

KEPT_MS: Final = {"retired": DAY_MS, "lost": 7 * DAY_MS}
ANY: Final = NodeConstraints()


@dataclass
class NodeSheet:
    """Known state of one node.

    stands_since: when it was retired or lost
    warnings: number of warnings since it was last registered
    bars: reasons other than its standing why it gets no new leases
    """

    described: NodeDescription
    standing: str = "up"
    stands_since: Ms = 0
    warnings: int = 0
    bars: set[str] = field(default_factory=set)

    @property
    def is_grantable(self) -> bool:
        return self.standing == "up" and not self.bars


@dataclass
class Wait:
    """A placement in the queue. asked: without what it has given up."""

    placement: Placement
    asked: NodeConstraints
    domain_until: Ms | None
    spot: bool | None
    spot_until: Ms | None
    spot_from: Ms | None


@dataclass
class PlacementBooks:
    """Entered decision by decision; `violations` is what did not hold."""

    violations: list[str] = field(default_factory=list)
    _nodes: dict[str, NodeSheet] = field(default_factory=dict)
    _waits: dict[str, Wait] = field(default_factory=dict)
    _open: dict[tuple[str, int], LeaseGranted] = field(default_factory=dict)  # nothing ends them
    _on_spot: set[tuple[str, int]] = field(default_factory=set)  # attempts that had a spot node
    _lost: dict[str, list[Ms]] = field(default_factory=dict)  # when jobs have lost spot nodes
    _met: set[str] = field(default_factory=set)  # nodes that have had a lease
    _last: dict[str, set[str]] = field(default_factory=dict)  # nodes of the last lease of a job

    def enter(self, command: Any, events: tuple[Any, ...], at: Ms) -> None:
        """One decision of the pool."""
        if isinstance(command, Tick):
            self._forgotten_by_time(events, at)
        for event in events:
            self._enter(event, at)
        if isinstance(command, WarnNode):
            ended = [
                event
                for event in events
                if isinstance(event, LeaseKilled | PlacementClosed)
                or (isinstance(event, LeaseDraining) and event.beneficiary is None)
            ]
            if ended:
                self._say("warning", f"of {command.node_id} ends what runs: {ended}")
        if isinstance(command, DrainNode) and not any(isinstance(e, Repeated) for e in events):
            for lease in self._open.values():
                if command.node_id in {member.node_id for member in lease.members}:
                    self._say("drain", f"of {command.node_id} lets {lease.lease} run on")

    def _enter(self, event: Any, at: Ms) -> None:
        match event:
            case NodeRegistered() | NodeForgotten():
                self._come_or_go(event, at)
            case NodeResized():
                sheet = self._nodes[event.node_id]
                sheet.described = replace(sheet.described, slots=event.slots)
            case NodeLost() | NodeRetired():
                sheet = self._nodes[event.node_id]
                sheet.standing = "lost" if isinstance(event, NodeLost) else "retired"
                sheet.stands_since = at
            case NodesObserved():
                for seen in event.seen:
                    known = self._nodes.get(seen.node_id)
                    is_this = known and known.described.incarnation == seen.incarnation
                    if known and is_this and known.standing == "lost" and not seen.silent:
                        known.standing = "up"
            case NodeJoined() | NodeUncordoned():
                why = "joining" if isinstance(event, NodeJoined) else "cordoned"
                self._nodes[event.node_id].bars.discard(why)
            case NodeCordoned() | NodeLeaving() | NodeNoticed():
                why = "cordoned" if isinstance(event, NodeCordoned) else "leaving"
                self._nodes[event.node_id].bars.add(why)
            case DeviceFaultsChanged():
                bars = self._nodes[event.node_id].bars
                (bars.add if event.faults else bars.discard)("faulty")
            case NodeWarned():
                sheet = self._nodes[event.node_id]
                sheet.warnings += 1
                if sheet.warnings > 1:
                    self._say("warning", f"{event.node_id} is warned {sheet.warnings} times")
            case PlacementQueued():
                self._queue(event, at)
            case DomainGivenUp() | SpotGivenUp() | SpotReconsidered():
                self._change(self._waits[event.job_id], event, at)
            case LeaseGranted():
                self._grant(event, self._waits.pop(event.lease.job_id))
            case LeaseDraining() | LeaseKilled():
                self._open.pop((event.lease.job_id, event.lease.attempt), None)
            case PlacementClosed():
                self._waits.pop(event.job_id, None)
                self._open.pop((event.job_id, event.attempt), None)
                is_lost = event.end.outcome in ("lost", "preempted")
                had_spot = (event.job_id, event.attempt) in self._on_spot
                if had_spot and is_lost and event.end.ended_by == "node":
                    self._lost.setdefault(event.job_id, []).append(at)
            case _:
                pass

    # --- nodes ------------------------------------------------------------------------------------

    def _come_or_go(self, event: NodeRegistered | NodeForgotten, at: Ms) -> None:
        if isinstance(event, NodeRegistered):
            bars = {"joining"} if event.joining else set[str]()
            self._nodes[event.node.node_id] = NodeSheet(event.node, bars=bars)
            return
        sheet = self._nodes.pop(event.node_id)
        if sheet.standing == "up":
            self._say("forgotten", f"{event.node_id} is, and it is up")

    def _forgotten_by_time(self, events: tuple[Any, ...], at: Ms) -> None:
        """Check that nodes are forgotten only after their retention time.

        Called before the events of the tick are entered.
        """
        for event in events:
            if isinstance(event, NodeForgotten):
                sheet = self._nodes[event.node_id]
                if at < sheet.stands_since + KEPT_MS.get(sheet.standing, 0):
                    self._say("forgotten", f"{event.node_id} is, {sheet.standing} just now")

    # --- the queue --------------------------------------------------------------------------------

    def _queue(self, event: PlacementQueued, at: Ms) -> None:
        asked = event.placement.constraints or ANY
        self._waits[event.placement.job_id] = Wait(
            event.placement,
            asked,
            event.domain_until,
            event.spot,
            event.spot_until,
            event.spot_from,
        )
        patience_ms = asked.domain_wait_ms if asked.domain else None
        until = None if patience_ms is None else at + patience_ms
        if event.domain_until != until:
            self._say("domain", f"{event.placement.job_id} waits until {event.domain_until}")
        in_time = event.spot_until is None or at < event.spot_until
        may = asked.spot is True and in_time and not self._has_lost(event.placement.job_id, at)
        if event.spot is True and not may:
            self._say("spot", f"{event.placement.job_id} may have spot nodes, it asks for {asked}")

    def _has_lost(self, job_id: str, at: Ms) -> bool:
        """True if a job lost two spot nodes within two hours, the second in the last four hours."""
        lost = self._lost.get(job_id, [])[-2:]
        return len(lost) == 2 and lost[1] - lost[0] <= 2 * HOUR_MS and at < lost[1] + 4 * HOUR_MS

    def _change(
        self, wait: Wait, event: DomainGivenUp | SpotGivenUp | SpotReconsidered, at: Ms
    ) -> None:
        """Apply a change of a wait's domain or spot preference, and check that it is not early."""
        match event:
            case DomainGivenUp():
                due, wait.domain_until = wait.domain_until, None
                wait.asked = replace(wait.asked, domain="")
            case SpotGivenUp():
                due, wait.spot = wait.spot_until, False
            case SpotReconsidered():
                due, wait.spot, wait.spot_until = wait.spot_from, event.spot, event.spot_until
        if due is None or at < due:
            self._say("early", f"{event} comes at {at}, it is due at {due}")

    # --- leases -----------------------------------------------------------------------------------

    def _grant(self, event: LeaseGranted, wait: Wait) -> None:
        sheets = [self._nodes[member.node_id] for member in event.members]
        name, asked = event.lease.job_id, wait.asked
        before = self._last.get(name, ())
        is_kept = wait.placement.role == "eval" and event.members[0].node_id in before
        if is_kept:
            asked = ANY  # it continues in the place that its training had
        if asked.domain and any(sheet.described.domain != asked.domain for sheet in sheets):
            self._say("domain", f"{name} asks for {asked.domain}, and gets {event.members}")
        if asked.spot is False and any(sheet.described.spot for sheet in sheets):
            self._say("spot", f"{name} wants nodes that stay, and gets {event.members}")
        if asked.spot is True and wait.spot is False and sheets[0].described.spot:
            stays = [sheet for sheet in self._others(wait) if not sheet.described.spot]
            if stays:
                self._say("spot", f"{name} gets {event.members} beside {stays}")
        device = wait.placement.device
        kinds = {
            LeaseHardware(
                device=device, accelerator=sheet.described.accelerator, spot=sheet.described.spot
            )
            for sheet in sheets
        }
        if kinds != {event.lease.hardware or LeaseHardware()}:
            self._say(
                "hardware", f"{name} is priced as on {event.lease.hardware}, it is on {kinds}"
            )
        if any(sheet.warnings for sheet in sheets) and not self._waits and not is_kept:
            self._judge_warned(event, wait)
        self._open[name, event.lease.attempt] = event
        if sheets[0].described.spot:
            self._on_spot.add((name, event.lease.attempt))
        self._last[name] = {member.node_id for member in event.members}
        self._met |= self._last[name]

    def _others(self, wait: Wait) -> list[NodeSheet]:
        """Nodes that could hold all of a placement, and are in service."""
        asked = wait.asked
        return [
            sheet
            for sheet in self._nodes.values()
            if sheet.is_grantable
            and sheet.described.slots >= wait.placement.slots
            and asked.domain in ("", sheet.described.domain)
        ]

    def _judge_warned(self, event: LeaseGranted, wait: Wait) -> None:
        """Nothing else waits, so nothing can be kept for it: an idle node comes before this one."""
        name = event.lease.job_id
        idle = [
            sheet.described.node_id
            for sheet in self._others(wait)
            if not sheet.warnings and sheet.described.node_id not in self._met
        ]
        if idle and wait.asked.spot is not False:
            self._say("warning", f"{name} gets {event.members}, although {idle} had nothing yet")

    def _say(self, invariant: str, text: str) -> None:
        self.violations.append(f"{invariant}: {text}")
