"""The state that is planned on: nodes, what runs, what waits. Facts change it one by one."""

from collections.abc import Iterable
from dataclasses import replace

from schemas.units import Ms
from services.scheduler.domain.pool.planning.capacity import Capacity, suits
from services.scheduler.domain.pool.planning.policy import Policy
from services.scheduler.domain.pool.planning.queue import Queue
from services.scheduler.domain.pool.planning.requests import PlanNode, Request, Running, Seats


class PlanningState:
    """Nodes, leases and the queue.

    capacity: what no lease holds.
    queue: what waits.
    running: leases by key, also those that were told to end and have not ended.
    bound: seats that leases were told to free for a request, by its job.
    held: slots by tenant.
    """

    __slots__ = ("bound", "capacity", "held", "policy", "queue", "running")

    def __init__(self, nodes: Iterable[PlanNode], policy: Policy) -> None:
        self.policy = policy
        self.capacity = Capacity(nodes)
        self.queue = Queue(policy)
        self.running: dict[str, Running] = {}
        self.bound: dict[str, Seats] = {}
        self.held: dict[str, int] = {}

    def start(self, running: Running) -> None:
        """A lease holds its seats."""
        self.running[running.key] = running
        self.capacity.take(running.seats, running.memory_bytes)
        self._count(running, 1)

    def leave_queue(self, job_id: str) -> Request:
        """A request was granted or withdrawn; nothing is bound to it any more."""
        self.bound.pop(job_id, None)
        return self.queue.remove(job_id)

    def bind(self, job_id: str, seats: Seats) -> None:
        """Seats that leases were told to free are for this request alone.

        Where a node is not there any more, or has come back smaller or with other devices, the
        request waits as before.
        """
        nodes, needs = self.capacity.nodes, self.queue.requests[job_id].needs
        if all(
            node_id in nodes and nodes[node_id].slots >= slots and suits(nodes[node_id], needs)
            for node_id, slots in seats
        ):
            self.bound[job_id] = seats

    def save(self, key: str, at: Ms) -> None:
        """The work of a lease up to now is in a checkpoint."""
        self.running[key] = replace(self.running[key], saved_at=at)

    def notify(self, key: str, ends_by: Ms) -> None:
        """A lease was told to end."""
        self.running[key] = replace(self.running[key], ends_by=ends_by)

    def end(self, key: str) -> Running:
        """The seats of a lease are free."""
        running = self.running.pop(key)
        self.capacity.give(running.seats, running.memory_bytes)
        self._count(running, -1)
        return running

    def _count(self, running: Running, sign: int) -> None:
        self.held[running.tenant] = self.held.get(running.tenant, 0) + sign * running.slots
