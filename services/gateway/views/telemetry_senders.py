"""Filter of telemetry: a node may only report, with its signature, on its own attempts."""

import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

from schemas.streams import agent_of, key_number_of, node_of
from schemas.topics import TELEMETRY
from services.gateway.views.ports import Views
from services.gateway.views.tables.jobs import ATTEMPT_NODES, INVITATIONS, NODES
from tunery.runtime.bus.abstract import Record
from tunery.runtime.bus.signing import SenderKeys, Unproven
from tunery.runtime.journal.codec import MALFORMED
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.telemetry.metrics import REJECTIONS

LOG: Final = logging.getLogger("tunery.gateway")
ATTEMPTS_MAX: Final = 10_000  # whose nodes are remembered; the least recently used is dropped
NODES_OF_ATTEMPT_MAX: Final = 1_000


class _Subject(msgspec.Struct, frozen=True):
    """Job and attempt that a telemetry message concerns."""

    job_id: str
    attempt: int


class TelemetrySenders:
    """Lets pass what counts; what does not is counted and logged.

    An attempt whose lease the read models do not show yet may be any node's: they may be behind.
    """

    def __init__(self, keys: SenderKeys, views: Views) -> None:
        self._keys, self._views = keys, views
        self._nodes: OrderedDict[_Subject, frozenset[str]] = OrderedDict()
        if keys.sender and not keys.can_check(TELEMETRY.name):
            why = "`tunery kafka keys gateway` prints keys that are newer"
            log_event(LOG, logging.WARNING, "telemetry.unchecked", why=why)

    async def counted(self, records: Sequence[Record]) -> list[Record]:
        """Return the records from authorised senders; the others are logged. Raises
        StoreUnavailable.
        """
        if not self._keys.can_check(TELEMETRY.name):
            return list(records)
        withdrawn, unknown = dict[str, int](), set[_Subject]()
        counted = []
        for record in records:
            reason = await self._refusal(record, withdrawn, unknown)
            if reason is None:
                counted.append(record)
                continue
            REJECTIONS.labels("telemetry", reason).inc()
            position = f"{record.partition}/{record.offset}"
            log_event(LOG, logging.WARNING, "telemetry.refused", why=reason, position=position)
        return counted

    async def _refusal(
        self, record: Record, withdrawn: dict[str, int], unknown: set[_Subject]
    ) -> str | None:
        """Why a record does not count; None: it does. withdrawn, unknown: of this batch."""
        try:
            sender = self._keys.sender_of(TELEMETRY.name, record.value, record.timestamp)
        except Unproven:
            return "sender_unproven"
        if sender is None:
            return None
        agent = node_of(sender)
        if agent is None:
            return "sender_not_permitted"
        if await self._is_withdrawn(sender, agent, withdrawn):
            return "sender_withdrawn"
        try:
            subject = msgspec.json.decode(record.value, type=_Subject)
        except MALFORMED:
            return None  # the reader says so
        if subject in unknown:
            return None
        nodes = await self._nodes_of(subject)
        if not nodes:
            unknown.add(subject)
            return None
        own = [node_id for node_id in nodes if agent_of(node_id) == agent]
        if not own:
            return "sender_not_node"
        for node_id in own:
            if await self._is_withdrawn(sender, node_id, withdrawn):
                return "sender_withdrawn"
        return None

    async def _is_withdrawn(self, sender: str, node_id: str, withdrawn: dict[str, int]) -> bool:
        """Return whether a key is withdrawn for a node, or for all nodes of its agent.

        withdrawn: what is known so far, filled here.
        """
        if node_id not in withdrawn:
            withdrawn[node_id] = await self._withdrawn(node_id)
        return key_number_of(sender) <= withdrawn[node_id]

    async def _withdrawn(self, node_id: str) -> int:
        """Number of the last key of a node that is withdrawn; 0: none is."""
        node = await self._views.first(NODES, {"id": node_id})
        invitation = await self._views.first(INVITATIONS, {"id": node_id})
        rows = (row for row in (node, invitation) if row is not None)
        return max((row.keys_withdrawn or 0 for row in rows), default=0)

    async def _nodes_of(self, subject: _Subject) -> frozenset[str]:
        """Nodes of the lease of an attempt; none: the read models do not show it."""
        nodes = self._nodes.pop(subject, frozenset())
        if not nodes:
            where = {"job_id": subject.job_id, "attempt": subject.attempt}
            rows = await self._views.page(ATTEMPT_NODES, where, limit=NODES_OF_ATTEMPT_MAX)
            nodes = frozenset(row.node_id for row in rows)
        if nodes:
            self._nodes[subject] = nodes
            if len(self._nodes) > ATTEMPTS_MAX:
                self._nodes.popitem(last=False)
        return nodes
