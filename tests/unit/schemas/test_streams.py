"""Permits of a stream: who may send a command, and who may name a source."""

from schemas.envelope import Rejected, Tick
from schemas.streams import Permit, Stream, agent_of, key_number_of, node_of, service_of

TOY = Stream("toy", "tenant", "toys", (), Tick, Tick)
GUARDED = Stream(
    *("guarded", "tenant", "guards", (), Tick, Tick),
    permits=(Permit("guests", frozenset({Tick})),),
    sources={"visits": "guests"},
    counters={"counts.": Tick},
)


def test_a_stream_without_permits_takes_commands_of_anybody() -> None:
    assert TOY.may_send("anybody", Tick)
    assert TOY.may_name("anybody", "anything", Tick)


def test_a_permit_names_sender_and_command() -> None:
    assert GUARDED.may_send("guests", Tick)
    assert not GUARDED.may_send("guests", Rejected)
    assert not GUARDED.may_send("anybody", Tick)


def test_only_the_owner_of_a_stream_reacts_to_it() -> None:
    assert GUARDED.may_name("guests", "visits", Tick)
    assert not GUARDED.may_name("guests", "elsewhere", Tick)
    assert not GUARDED.may_name("anybody", "visits", Tick)


def test_counted_commands_have_sources_of_their_own() -> None:
    assert GUARDED.may_name("anybody", "counts.1", Tick)
    assert not GUARDED.may_name("guests", "counts.1", Rejected)
    assert not GUARDED.may_name("guests", "counts.1", None)


def test_a_node_has_the_rights_of_the_agent() -> None:
    assert (node_of("node.a#2"), key_number_of("node.a#2")) == ("a", 2)
    assert (node_of("billing"), key_number_of("node.a")) == (None, 1)
    assert (service_of("node.a"), service_of("billing")) == ("trainer", "billing")


def test_nodes_of_a_cluster_share_their_agent() -> None:
    assert (agent_of("k8s:h100"), agent_of("k8s:a100"), agent_of("gpu-07")) == (
        "k8s",
        "k8s",
        "gpu-07",
    )
