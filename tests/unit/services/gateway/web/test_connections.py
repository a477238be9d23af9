"""Idle connections replace each other, and no connection in use (finding H2)."""

import pytest

from services.gateway.web.connections import Connections, network_of


class Open:
    """A connection that remembers whether it was cut."""

    def __init__(self) -> None:
        self.why: str | None = None

    def cut(self, why: str) -> None:
        self.why = why


def open_some(connections: Connections, count: int, address: str) -> list[Open]:
    opened = [Open() for _ in range(count)]
    assert all(connections.opened(connection, address) for connection in opened)
    return opened


def test_the_one_that_waited_longest_is_cut_for_a_new_one() -> None:
    connections = Connections(3, 10)
    first, second, third = open_some(connections, 3, "192.0.2.1")
    connections.serves(first)
    assert connections.opened(Open(), "192.0.2.2")
    assert (first.why, third.why) == (None, None)
    assert second.why is not None
    assert len(connections) == 3


def test_a_new_one_is_refused_while_none_waits() -> None:
    connections = Connections(2, 10)
    served = open_some(connections, 2, "192.0.2.1")
    for connection in served:
        connections.serves(connection)
    late = Open()
    assert not connections.opened(late, "192.0.2.2")
    connections.closed(late)  # its end is told all the same
    connections.waits(served[0])  # its response is sent
    assert connections.opened(Open(), "192.0.2.2")
    assert served[0].why is not None


def test_an_address_has_a_limit_of_its_own() -> None:
    connections = Connections(100, 2)
    other, *_ = open_some(connections, 1, "192.0.2.2")
    mine = open_some(connections, 3, "192.0.2.1")
    assert [connection.why is None for connection in mine] == [False, True, True]
    assert other.why is None
    connections.closed(mine[1])
    assert connections.opened(Open(), "192.0.2.1")
    assert mine[2].why is None


def test_proxies_have_no_limit_of_their_own() -> None:
    connections = Connections(100, 2, frozenset({"192.0.2.1"}))
    opened = open_some(connections, 5, "192.0.2.1")
    assert all(connection.why is None for connection in opened)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("testclient", "testclient"),
    ],
)
def test_addresses_are_counted_by_their_subscriber(address: str, network: str) -> None:
    assert network_of(address) == network
