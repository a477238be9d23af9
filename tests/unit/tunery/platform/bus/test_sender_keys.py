"""Each principal has the keys of its own name, for the streams that it sends to or owns."""

import pytest

from schemas.topics import ACCOUNT, JOB, POOL, RELEASES, SERVICES, SESSION, STREAMS, TELEMETRY
from tunery.platform.bus.sender_keys import NODES, keys_of
from tunery.runtime.bus.signing import SenderKeys, Unproven, node_keys

pytestmark = pytest.mark.security

SECRET = b"s" * 32


def test_security_c2_a_principal_has_keys_of_its_own_name_and_streams_alone() -> None:
    node = keys_of(SECRET, "node.gpu-07")
    streams = (ACCOUNT, POOL, SESSION, TELEMETRY, RELEASES)
    assert node.own.keys() == {NODES, *(stream.name for stream in streams)}
    assert not node.checked
    assert not node.secret
    scheduler = keys_of(SECRET, "scheduler")
    assert scheduler.checked.keys() == {JOB.name, POOL.name, SESSION.name, NODES}
    assert keys_of(SECRET, "gateway").checked.keys() == {TELEMETRY.name}
    for stream in STREAMS.values():
        assert stream.name in keys_of(SECRET, stream.owner).checked
    every = [keys_of(SECRET, name).own for name in ("gateway", "scheduler", "node.a", "node.b")]
    values = [value for own in every for value in own.values()]
    assert len(set(values)) == len(values)


def test_the_scheduler_makes_keys_of_nodes_only() -> None:
    scheduler = keys_of(SECRET, "scheduler")
    assert node_keys(scheduler, "node.a#2") == keys_of(SECRET, "node.a#2")
    assert scheduler.nodes.keys() == keys_of(SECRET, "node.a").own.keys()
    others = (name for name in SERVICES if name != "scheduler")
    assert not any(keys_of(SECRET, name).nodes for name in others)
    forged = SenderKeys("gateway", node_keys(scheduler, "gateway").own)
    with pytest.raises(Unproven):
        keys_of(SECRET, "billing").sender_of(ACCOUNT.name, forged.sign(ACCOUNT.name, b"{}"), 0)


@pytest.mark.parametrize(
    "name",
    [
        "stranger",
        "operator",
        "node.",
        "node.a#1",
        "node.a#02",
        "gateway#2",
        'node.a","x":"',
        "node.a b",
        "",
    ],
)
def test_a_name_that_no_sender_has_gets_no_keys(name: str) -> None:
    with pytest.raises(ValueError, match="is no sender"):
        keys_of(SECRET, name)
