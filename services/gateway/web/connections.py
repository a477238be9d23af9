"""Open connections: how many there may be, and which one is cut for a new one."""

from collections import Counter
from ipaddress import IPv6Address, ip_address
from typing import Final, Protocol

CONNECTIONS_MAX: Final = 2_048
OF_ADDRESS_MAX: Final = 1_024
NETWORK_BITS: Final = 64  # of IPv6: a subscriber has at least that many addresses


class Connection(Protocol):
    """Connection that can be closed."""

    def cut(self, why: str) -> None:
        """Close at once."""
        ...


class Connections:
    """Bounds open connections, of one address and of all together.

    A connection waits while no request of it is under way. When a new one comes and there are too
    many, the one that has waited longest is cut; while none waits, the new one is refused. So
    connections that say nothing only drive out each other. `trusted`: addresses of proxies, behind
    which are many clients.
    """

    def __init__(self, most: int, of_address: int, trusted: frozenset[str] = frozenset()) -> None:
        self._most, self._of_address, self._trusted = most, of_address, trusted
        self._open: dict[Connection, str] = {}
        self._waiting: dict[Connection, None] = {}  # who waits longest is first
        self._counts = Counter[str]()

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, connection: Connection, address: str) -> bool:
        """Register a new connection; return False if it must be closed. Idle ones are closed to
        make room.
        """
        network = network_of(address)
        only = None
        if address not in self._trusted and self._counts[network] >= self._of_address:
            only = network
        if only is not None or len(self._open) >= self._most:
            longest = self._longest(only)
            if longest is None:
                return False
            self.closed(longest)
            longest.cut("another connection took its place")
        self._open[connection] = network
        self._counts[network] += 1
        self._waiting[connection] = None
        return True

    def closed(self, connection: Connection) -> None:
        """Forget a connection. It may have been forgotten already."""
        network = self._open.pop(connection, None)
        self._waiting.pop(connection, None)
        if network is not None:
            self._counts[network] -= 1
            if not self._counts[network]:
                del self._counts[network]

    def waits(self, connection: Connection) -> None:
        if connection in self._open:
            self._waiting.setdefault(connection)

    def serves(self, connection: Connection) -> None:
        """A request of this connection is under way, so it is not cut for another."""
        self._waiting.pop(connection, None)

    def _longest(self, network: str | None) -> Connection | None:
        waiting = (c for c in self._waiting if network is None or self._open[c] == network)
        return next(waiting, None)


def network_of(address: str) -> str:
    """Return the network that counts as one sender: an IPv4 address, or an IPv6 /64 prefix."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(ip, IPv6Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(IPv6Address(int(ip) >> NETWORK_BITS << NETWORK_BITS))
