"""Free slots of nodes by kind: best fit on one node, gangs over whole nodes."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence, Set
from functools import partial
from typing import NamedTuple, TypeAlias

from schemas.training import Device
from tunery.plan.scheduling.requests import ANY_NODE, SPOT, Kind, PlanNode, RequestClass, Seats

Domains: TypeAlias = dict[str, list[str]]


class Choice(NamedTuple):
    """Nodes that requests of one class can have."""

    needs: RequestClass  # class of the requests
    kinds: tuple[Kind, ...]  # kinds of suitable nodes, best first
    excluded: Set[str]  # nodes of these kinds that the class may not have
    is_gang: bool  # the request is larger than every suitable node, and gets whole ones


class Capacity:
    """Nodes and their free slots. For each kind of node there is a list of names by free slots."""

    __slots__ = ("_buckets", "_free_memory", "_memory", "_outside", "_sizes", "free", "nodes")

    def __init__(self, nodes: Iterable[PlanNode] = ()) -> None:
        self.nodes: dict[str, PlanNode] = {}
        self.free: dict[str, int] = {}
        self._free_memory: dict[str, int] = {}
        self._buckets: dict[Kind, list[list[str]]] = {}
        self._outside: dict[str, frozenset[str]] = {}  # nodes that are not of a domain
        self._sizes: dict[Kind, list[int]] = {}  # slots of the nodes of each kind, ascending
        self._memory: dict[Kind, list[int]] = {}  # bytes of memory of each, ascending
        for node in nodes:
            self.put(node)

    def copy(self) -> "Capacity":
        """Return a copy with separate free slots. No node may come or go afterwards."""
        twin = Capacity()
        twin.nodes, twin._sizes, twin._outside = self.nodes, self._sizes, self._outside
        twin._memory = self._memory
        twin.free = self.free.copy()
        twin._free_memory = self._free_memory.copy()
        twin._buckets = {
            kind: [names.copy() for names in buckets] for kind, buckets in self._buckets.items()
        }
        return twin

    def put(self, node: PlanNode) -> None:
        """Add a node, with all of its slots free."""
        self.remove(node.node_id)
        kind = node.kind
        self.nodes[node.node_id] = node
        self._outside.clear()
        self.free[node.node_id] = node.slots
        if node.device == "cpu":
            self._free_memory[node.node_id] = node.memory_bytes
        insort(self._sizes.setdefault(kind, []), node.slots)
        insort(self._memory.setdefault(kind, []), node.memory_bytes)
        buckets = self._buckets.setdefault(kind, [])
        while len(buckets) <= node.slots:
            buckets.append([])
        insort(buckets[node.slots], node.node_id)

    def remove(self, node_id: str) -> None:
        """Remove a node."""
        node = self.nodes.pop(node_id, None)
        if node is None:
            return
        self._outside.clear()
        buckets, sizes = self._buckets[node.kind], self._sizes[node.kind]
        memory = self._memory[node.kind]
        names = buckets[max(0, self.free.pop(node_id))]
        del names[bisect_left(names, node_id)]
        self._free_memory.pop(node_id, None)
        del sizes[bisect_left(sizes, node.slots)]
        del memory[bisect_left(memory, node.memory_bytes)]
        del buckets[sizes[-1] + 1 if sizes else 0 :]
        if not sizes:
            del self._buckets[node.kind], self._sizes[node.kind], self._memory[node.kind]

    def take(self, seats: Seats, memory_bytes: int) -> None:
        """Mark slots as used. memory_bytes: of each slot. Unknown nodes are ignored."""
        for node_id, slots in seats:
            if node_id in self.free:
                self._change(node_id, -slots, memory_bytes)

    def give(self, seats: Seats, memory_bytes: int) -> None:
        """Mark slots as free again. memory_bytes: of each slot. Unknown nodes are ignored."""
        for node_id, slots in seats:
            if node_id in self.free:
                self._change(node_id, slots, memory_bytes)

    def set_free(self, node_id: str, slots: int) -> None:
        """Set the number of free slots of a node, whatever was taken and given before."""
        self._change(node_id, slots - self.free[node_id], 0)

    def limit(self, node_id: str, slots: int) -> None:
        """Let at most `slots` slots of a node be free."""
        if slots < self.free[node_id]:
            self.set_free(node_id, slots)

    def find_seats(self, needs: RequestClass) -> Seats | None:
        """Return seats where a request of this class fits now; None: nowhere.

        The devices with the least memory that suffices come first, so that larger ones are kept for
        requests that need them. On one node it is the best fit; a request that is larger than every
        suitable node gets whole nodes.
        """
        return self.find_seats_of(self.choice(needs))

    def choice(self, needs: RequestClass) -> Choice:
        """Return the nodes that a class may have, valid until a node comes or goes."""
        kinds = self.kinds(needs)
        is_gang = all(self.largest_of(kind) < needs.slots for kind in kinds)
        return Choice(needs, tuple(kinds), self.excluded(needs), is_gang)

    def find_seats_of(self, choice: Choice, kept: Set[str] = frozenset()) -> Seats | None:
        """Return seats as `find_seats` does, for a known choice. kept: nodes it may not have
        now.
        """
        needs, kinds, excluded, is_gang = choice
        if kept:
            excluded = excluded | kept
        for kind in kinds:
            buckets = self._buckets[kind]
            if is_gang:
                seats = self._whole_nodes(buckets, needs, excluded)
                if seats is not None:
                    return seats
                continue
            for names in buckets[needs.slots :]:
                for node_id in names:
                    if node_id not in excluded and self.has_memory(node_id, needs):
                        return ((node_id, needs.slots),)
        return None

    @property
    def all_kinds(self) -> Collection[Kind]:
        """Kinds of all nodes."""
        return self._buckets.keys()

    def kinds(self, needs: RequestClass) -> list[Kind]:
        """Kinds of nodes that suit a class, those with the least memory first.

        Those with taints that the class tolerates come before all others, which more classes may
        have, and those that may soon be taken away come last. Of equal ones those that are paid
        for come before others, and spot nodes last; where the class allows spot nodes they come
        first.
        """
        kinds = [kind for kind in self._buckets if self.suits(kind, needs)]
        if all(self.largest_of(kind) < needs.slots for kind in kinds):  # it would need several
            kinds = [kind for kind in kinds if kind.fabric]
        if len(kinds) < 2:
            return kinds
        spot_first = needs.constraints.spot is True and not needs.avoids_spot
        return sorted(kinds, key=partial(_order, spot_first))

    def suits(self, kind: Kind, needs: RequestClass) -> bool:
        """Return whether nodes of this kind suit a request, given the other nodes in the pool."""
        is_avoided = needs.avoids_spot and kind.price == SPOT
        return self._suits(kind, needs) and not (is_avoided and self._has_others(needs))

    def could_hold(self, node: PlanNode, needs: RequestClass) -> bool:
        """Return whether a node suits a request and has enough memory when idle."""
        return self.suits(node.kind, needs) and _has_memory_for(node, needs)

    def excluded(self, needs: RequestClass) -> Set[str]:
        """Nodes of other domains than its own, and those that failed under this job.

        Where no other is left these are tried again: a job would wait for ever otherwise, and
        retries are counted; a back-off bars them for now.
        """
        domain = needs.constraints.domain
        barred = self._outside_of(domain).union(needs.barred) if domain else {*needs.barred}
        if not needs.excluded:
            return barred
        excluded = barred.union(needs.excluded)
        others = (
            node
            for node_id, node in self.nodes.items()
            if node_id not in excluded and self.could_hold(node, needs)
        )
        if needs.slots > (largest := self.largest(needs)) and not needs.on_one_node:
            return excluded if _most(others) >= needs.slots else barred
        least = min(needs.slots, largest)
        return excluded if any(node.slots >= least for node in others) else barred

    def largest(self, needs: RequestClass) -> int:
        """Slots of the largest node that suits a class; 0: none does."""
        return max((self._sizes[kind][-1] for kind in self.kinds(needs)), default=0)

    def whole(self, kind: Kind) -> Sequence[str]:
        """The largest nodes of a kind, where all slots are free, by name."""
        return self._buckets[kind][self.largest_of(kind)]

    def largest_of(self, kind: Kind) -> int:
        """Slots of the largest node of a kind."""
        return self._sizes[kind][-1]

    def slots_of(self, kind: Kind) -> int:
        """Slots of all nodes of a kind."""
        return sum(self._sizes[kind])

    def most(self, needs: RequestClass) -> int:
        """Slots that a class could have at most, if all nodes were free: of one, or of several."""
        if needs.on_one_node:
            return self.largest(needs)
        return _most(node for node in self.nodes.values() if self.suits(node.kind, needs))

    def total(self, needs: RequestClass) -> int:
        return sum(node.slots for node in self.nodes.values() if self.suits(node.kind, needs))

    def has_memory(self, node_id: str, needs: RequestClass, freed_bytes: int = 0) -> bool:
        """Return whether the leases of a node leave enough of their shared memory."""
        slots = min(needs.slots, self.nodes[node_id].slots)
        return self._has_free_memory(node_id, slots * needs.memory_bytes - freed_bytes)

    def domains(self, whole: Iterable[str]) -> Domains:
        """Group nodes by their network domain, in the given order."""
        by_domain: Domains = defaultdict(list)
        for node_id in whole:
            by_domain[self.nodes[node_id].domain].append(node_id)
        return by_domain

    def _has_free_memory(self, node_id: str, memory_bytes: int) -> bool:
        left = self._free_memory.get(node_id)
        return left is None or left >= memory_bytes

    def _outside_of(self, domain: str) -> frozenset[str]:
        outside = self._outside.get(domain)
        if outside is None:
            others = (node_id for node_id, node in self.nodes.items() if node.domain != domain)
            outside = self._outside[domain] = frozenset(others)
        return outside

    def _has_others(self, needs: RequestClass) -> bool:
        """Return whether nodes that are not spot could hold a request."""
        if needs.constraints.domain:
            outside = self._outside_of(needs.constraints.domain)
            return any(
                node.slots >= needs.slots
                and node.kind.price != SPOT
                and self._suits(node.kind, needs)
                and _has_memory_for(node, needs)
                for node_id, node in self.nodes.items()
                if node_id not in outside
            )
        suitable = [kind for kind in self._buckets if self._suits(kind, needs)]
        is_gang = all(self.largest_of(kind) < needs.slots for kind in suitable)
        slots_of = self.slots_of if is_gang else self.largest_of
        if is_gang:
            suitable = [kind for kind in suitable if kind.fabric]
        return any(
            kind.price != SPOT
            and slots_of(kind) >= needs.slots
            and self._memory[kind][0] >= _memory_for(kind.device, self.largest_of(kind), needs)
            for kind in suitable
        )

    def _suits(self, kind: Kind, needs: RequestClass) -> bool:
        """Return whether slots of every node of this kind suit a request."""
        return suits(kind, self._memory[kind][0], needs)

    def _change(self, node_id: str, slots: int, memory_bytes: int) -> None:
        before, node = self.free[node_id], self.nodes[node_id]
        buckets = self._buckets[node.kind]
        names = buckets[max(0, before)]
        del names[bisect_left(names, node_id)]
        insort(buckets[max(0, before + slots)], node_id)
        self.free[node_id] = before + slots
        if node_id in self._free_memory:
            self._free_memory[node_id] += slots * memory_bytes

    def _whole_nodes(
        self, buckets: list[list[str]], needs: RequestClass, excluded: Set[str]
    ) -> Seats | None:
        """Whole nodes of one kind, from as few domains as can be, and a rest on one node more."""
        slots = len(buckets) - 1
        count, rest = divmod(needs.slots, slots)
        whole = [
            name for name in buckets[slots] if name not in excluded and self.has_memory(name, needs)
        ]
        if len(whole) < count:
            return None
        chosen = list(pick(self.domains(whole), count))
        seats = tuple((node_id, slots) for node_id in sorted(chosen))
        if rest == 0:
            return seats
        home = {self.nodes[node_id].domain for node_id in chosen}
        rests = [
            (self.nodes[node_id].domain not in home, free, node_id)
            for free, names in enumerate(buckets[rest:], start=rest)
            for node_id in names
            if node_id not in excluded and node_id not in chosen
            if self._has_free_memory(node_id, rest * needs.memory_bytes)
        ]
        return (*seats, (min(rests)[2], rest)) if rests else None


def most_slots(nodes: Iterable[tuple[Hashable, bool, int]]) -> int:
    """Return the most slots that work can have: on one node, or on several that have a fabric.

    Several are whole nodes of a kind, and one more.
    nodes: kind, whether it has a fabric, and slots of each node
    """
    largest, by_kind = 0, defaultdict[Hashable, list[int]](list)
    for kind, fabric, slots in nodes:
        largest = max(largest, slots)
        if fabric:
            by_kind[kind].append(slots)
    return max((largest, *map(_most_of, by_kind.values())))


def _most_of(sizes: Sequence[int]) -> int:
    largest = max(sizes)
    return largest * sizes.count(largest) + max(
        (size for size in sizes if size < largest), default=0
    )


def _most(nodes: Iterable[PlanNode]) -> int:
    return most_slots((node.kind, node.kind.fabric, node.slots) for node in nodes)


def suits(kind: Kind, memory_bytes: int, needs: RequestClass) -> bool:
    """Return whether slots of a node of this kind and memory suit a request."""
    if kind.device != needs.device or memory_bytes < needs.memory_bytes:
        return False
    asked = needs.constraints
    if asked is ANY_NODE:
        return not kind.taints
    return (
        asked.accelerator in ("", kind.accelerator)
        and (kind.price != SPOT or asked.spot is not False)
        and all(taint in asked.tolerations for taint in kind.taints)
    )


def _order(spot_first: bool, kind: Kind) -> tuple[bool, bool, int, int, Kind]:
    price = -1 if spot_first and kind.price == SPOT else kind.price
    return kind.warned, not kind.taints, kind.memory_gib, price, kind


def _has_memory_for(node: PlanNode, needs: RequestClass) -> bool:
    """Return whether an idle node has enough memory for a request."""
    return node.memory_bytes >= _memory_for(node.device, node.slots, needs)


def _memory_for(device: Device, slots: int, needs: RequestClass) -> int:
    """Return the memory that `slots` slots of a node need. Leases of a CPU node share it."""
    sharing = min(needs.slots, slots) if device == "cpu" else 1
    return sharing * needs.memory_bytes


def pick(domains: Domains, count: int) -> Iterator[str]:
    """Choose nodes from the fullest domain that has enough, or from the emptiest ones together."""
    enough = [(len(names), domain) for domain, names in domains.items() if len(names) >= count]
    if enough:
        yield from domains[min(enough)[1]][:count]
        return
    for _, domain in sorted((-len(names), domain) for domain, names in domains.items()):
        yield from domains[domain][:count]
        count -= len(domains[domain][:count])
