"""The state that is planned on: nodes, what runs, what waits. Facts change it one by one."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from schemas.units import Ms
from tunery.plan.scheduling.capacity import Capacity
from tunery.plan.scheduling.outlook import ClusterOutlook, foresee
from tunery.plan.scheduling.policy import Policy
from tunery.plan.scheduling.queue import Queue
from tunery.plan.scheduling.requests import PREMIUM, Kind, PlanNode, Request, Running, Seats


class PlanningState:
    """Nodes, leases and the queue.

    capacity: what no lease holds.
    queue: what waits.
    running: leases by key, including ones that have an order to end.
    premium: slots of the nodes that premium leases hold, by kind of node.
    bound: slots that leases were asked to free for a request, by its job.
    outlook: what is expected of nodes, as of the last `advance`.
    """

    __slots__ = (
        "_at",
        "_changed",
        "_on_node",
        "bound",
        "capacity",
        "outlook",
        "policy",
        "premium",
        "queue",
        "running",
    )

    def __init__(self, nodes: Iterable[PlanNode], policy: Policy) -> None:
        self.policy = policy
        self.capacity = Capacity()
        self.queue = Queue(policy)
        self.outlook = ClusterOutlook()
        self.running: dict[str, Running] = {}
        self.premium: dict[Kind, int] = {}
        self.bound: dict[str, Seats] = {}
        self._on_node: dict[str, dict[str, Running]] = {}
        self._changed: set[str] = set()  # nodes whose outlook is not known
        self._at: Ms = 0
        for node in nodes:
            self.put_node(node)

    @property
    def held(self) -> Mapping[str, int]:
        """Slots by tenant."""
        return self.queue.held

    def put_node(self, node: PlanNode) -> None:
        """A node may get leases, or is another one than before."""
        self.remove_node(node.node_id)
        self.capacity.put(node)
        for lease in self.leases_on(node.node_id):
            seats = ((node.node_id, lease.slots_on(node.node_id)),)
            self.capacity.take(seats, lease.memory_bytes)
            self._count_premium(lease, seats, 1)
        self._changed.add(node.node_id)

    def remove_node(self, node_id: str) -> None:
        """A node may get nothing. What runs there continues."""
        node = self.capacity.nodes.get(node_id)
        if node is not None:
            for lease in self.leases_on(node_id):
                self._count_premium(lease, ((node_id, lease.slots_on(node_id)),), -1)
            self.outlook.remove(node)
            self.capacity.remove(node_id)

    def leases_on(self, node_id: str) -> Collection[Running]:
        """Leases that hold slots of a node."""
        return self._on_node.get(node_id, {}).values()

    def start(self, running: Running) -> None:
        """A lease holds its seats."""
        self.running[running.key] = running
        self.capacity.take(running.seats, running.memory_bytes)
        self.queue.count(running.tenant, running.slots)
        self._count_premium(running, running.seats, 1)
        self.queue.charge(running.tenant, running.slots * running.p50_ms, running.granted_at)
        self._note(running)

    def end(self, key: str, at: Ms | None = None) -> Running:
        """The seats of a lease are free. at: now, where its tenant's use counts."""
        running = self.running.pop(key)
        self.capacity.give(running.seats, running.memory_bytes)
        self.queue.count(running.tenant, -running.slots)
        self._count_premium(running, running.seats, -1)
        if at is not None:
            more_ms = at - running.granted_at - running.p50_ms
            self.queue.charge(running.tenant, running.slots * more_ms, running.granted_at)
        for node_id, _ in running.seats:
            on_node = self._on_node[node_id]
            del on_node[key]
            if not on_node:
                del self._on_node[node_id]
            self._changed.add(node_id)
        return running

    def save(self, key: str, at: Ms) -> None:
        """The work of a lease up to now is in a checkpoint."""
        self._note(replace(self.running[key], saved_at=at))

    def notify(self, key: str, ends_by: Ms) -> None:
        """Record the order to end a lease."""
        self._note(replace(self.running[key], ends_by=ends_by))

    def leave_queue(self, job_id: str) -> Request:
        """A request was granted or withdrawn; nothing is bound to it any more."""
        self.bound.pop(job_id, None)
        return self.queue.remove(job_id)

    def bind(self, job_id: str, seats: Seats) -> None:
        """Bind slots that leases were asked to free to this request alone.

        Without any seats it waits like others.
        """
        if seats:
            self.bound[job_id] = seats
        else:
            self.bound.pop(job_id, None)

    def claims(self) -> dict[str, Seats]:
        """Bound seats of what waits, by job, as far as they can be had.

        Where a node is not there, or has come back smaller or with other devices, the request
        waits like others.
        """
        nodes, requests = self.capacity.nodes, self.queue.requests
        return {
            job_id: seats
            for job_id, seats in sorted(self.bound.items())
            if job_id in requests
            and all(
                node_id in nodes
                and nodes[node_id].slots >= slots
                and self.capacity.could_hold(nodes[node_id], requests[job_id].needs)
                for node_id, slots in seats
            )
        }

    def advance(self, at: Ms) -> None:
        """Advance the clock: old requests change their lane, and outlooks of nodes are computed
        again.
        """
        self.queue.age(at)
        if at < self._at:
            self._changed.update(self.capacity.nodes)
        self._at = at
        self._changed |= self.outlook.take_due(at)
        for node_id in self._changed:
            node = self.capacity.nodes.get(node_id)
            if node is not None:
                free, leases = self.capacity.free[node_id], self.leases_on(node_id)
                self.outlook.put(node, foresee(node, free, leases, at, self.policy))
        self._changed.clear()

    def _count_premium(self, lease: Running, seats: Seats, sign: int) -> None:
        if lease.lane == PREMIUM:
            for node_id, slots in seats:
                node = self.capacity.nodes.get(node_id)
                if node is not None:
                    self.premium[node.kind] = self.premium.get(node.kind, 0) + sign * slots

    def _note(self, running: Running) -> None:
        self.running[running.key] = running
        for node_id, _ in running.seats:
            self._on_node.setdefault(node_id, {})[running.key] = running
            self._changed.add(node_id)
