"""Memberships without a broker: with one they are tested in tests/integration."""

from typing import Any

import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.protocol.metadata import MetadataResponse_v0

from tunery.platform.bus.kafka_membership import _StickyAssignor, membership
from tunery.runtime.bus.abstract import Unavailable

NO_BROKER = {"bootstrap_servers": "127.0.0.1:1"}


async def test_a_broker_that_is_not_there_is_named() -> None:
    with pytest.raises(Unavailable, match=f"Kafka at {NO_BROKER['bootstrap_servers']}: "):
        async with membership(NO_BROKER, "group", "topic", 6_000):
            raise AssertionError("nobody can be a member")


def test_a_member_that_was_suspended_does_not_get_back_what_others_have_had_since() -> None:
    """Both name partition 0: the one whose assignment is newer keeps it."""
    topic = "commands"
    cluster = ClusterMetadata()
    cluster.update_metadata(
        MetadataResponse_v0([(1, "host", 1)], [(0, topic, [(0, p, 1, [1], [1]) for p in (0, 1)])])
    )
    awake: Any
    suspended: Any
    awake, suspended = (type("Sticky", (_StickyAssignor,), {}) for _ in range(2))
    first = suspended.assign(cluster, {"suspended": suspended.metadata({topic})})
    suspended.on_assignment(first["suspended"])
    # while it is suspended the other one owns everything, and owns it a second time
    for _ in range(2):
        following = awake.assign(cluster, {"awake": awake.metadata({topic})})
        awake.on_assignment(following["awake"])
    members = {"awake": awake.metadata({topic}), "suspended": suspended.metadata({topic})}
    generations = {
        name: awake.parse_member_metadata(member).generation for name, member in members.items()
    }
    assert generations == {"awake": 2, "suspended": 1}
    joined = awake.assign(cluster, members)
    owned = {name: assignment.partitions() for name, assignment in joined.items()}
    assert sorted(map(len, owned.values())) == [1, 1]
    assert all(assignment.user_data == (3).to_bytes(4) for assignment in joined.values())
