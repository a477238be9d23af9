"""A node is compared with the others of its type, where there are enough of them."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from schemas.anomaly import Anomaly
from services.watcher.domain.peers import (
    KEPT_MS,
    NODES_MAX,
    PEERS_MIN,
    LastSpeed,
    NodeSpeed,
    compare,
)

AT: Final = 1_795_000_020_000


def speed(node_id: str, tokens_per_s: float, *, at: int = AT, attempt: int = 1) -> NodeSpeed:
    return NodeSpeed("acme", f"ftjob-{node_id}", attempt, node_id, at - 60_000, at, tokens_per_s)


def compared(*speeds: NodeSpeed) -> tuple[dict[str, LastSpeed], list[Anomaly]]:
    peers, shown = dict[str, LastSpeed](), list[Anomaly]()
    for each in speeds:
        peers, anomaly = compare(peers, each)
        shown += [] if anomaly is None else [anomaly]
    return peers, shown


USUAL: Final = tuple(speed(name, 100.0) for name in "abc")


def test_a_node_beyond_the_spread_of_its_type_has_drifted_once_for_each_attempt() -> None:
    _, shown = compared(*USUAL, speed("d", 69.0), speed("d", 60.0))
    assert [(a.kind, a.measured_ppm, a.usual_ppm) for a in shown] == [("slow_node", 69e6, 100e6)]
    _, shown = compared(*USUAL, speed("d", 69.0), speed("d", 60.0, attempt=2))
    assert [anomaly.attempt for anomaly in shown] == [1, 2]
    _, shown = compared(*USUAL, speed("d", 69.0), speed("d", 90.0), speed("d", 60.0))
    assert len(shown) == 2


def test_within_the_spread_it_has_not() -> None:
    assert compared(*USUAL, speed("d", 78.0))[1] == []


def test_two_others_are_too_few_and_speeds_of_yesterday_are_none() -> None:
    assert compared(*USUAL[: PEERS_MIN - 1], speed("d", 10.0))[1] == []
    assert compared(*USUAL, speed("d", 10.0, at=AT + KEPT_MS))[1] == []


@given(
    st.lists(
        st.tuples(st.integers(0, 200), st.floats(0, 1e6), st.integers(0, 2 * KEPT_MS)), max_size=200
    )
)
def test_what_is_kept_is_bounded_and_a_speed_that_comes_twice_shows_nothing_more(
    drawn: list[tuple[int, float, int]],
) -> None:
    peers = dict[str, LastSpeed]()
    for node, tokens_per_s, later in drawn:
        newest = speed(f"n{node}", tokens_per_s, at=AT + later)
        peers, _ = compare(peers, newest)
        assert len(peers) <= NODES_MAX
        again, anomaly = compare(peers, newest)
        assert anomaly is None
        assert again.keys() == peers.keys()
