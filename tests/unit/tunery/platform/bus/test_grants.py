"""Rights on Kafka, computed from the catalogue."""

import pytest

from schemas.streams import service_of
from schemas.topics import (
    ACCOUNT,
    ASSIGNMENTS,
    ENDS,
    HEARTBEATS,
    JOB,
    LEVELS,
    PEERS,
    POOL,
    RELEASES,
    SERVICES,
    SESSION,
    SPEEDS,
    STREAMS,
    TELEMETRY,
    WATCHES,
)
from tunery.platform.bus.grants import KafkaGrant, grants_of
from tunery.runtime.bus.groups import owner_group, processor_group, reactor_group

pytestmark = pytest.mark.security


def on(resource: str, service: str, *, but: str = "") -> set[tuple[str, str]]:
    return {
        (grant.name, grant.operation)
        for grant in grants_of(service)
        if grant.resource == resource and grant.operation != but
    }


def test_a_node_reports_counts_answers_and_reads_assignments_and_sessions_alone() -> None:
    assert service_of("node.gpu-07") == "trainer"
    assert on("topic", "trainer", but="describe") == {
        (ACCOUNT.commands.name, "write"),
        (POOL.commands.name, "write"),
        (ASSIGNMENTS.name, "read"),
        (SESSION.commands.name, "write"),
        (SESSION.journal.name, "read"),
        (TELEMETRY.name, "write"),
        (HEARTBEATS.name, "write"),
        ("tunery.snapshots.v1", "read"),
        (LEVELS.name, "read"),
        (RELEASES.name, "write"),
    }
    assert on("group", "trainer") == set()


def test_an_owner_trims_its_commands_and_has_groups_of_its_own() -> None:
    deleted = {name for name, operation in on("topic", "scheduler") if operation == "delete"}
    assert deleted == {JOB.commands.name, POOL.commands.name, SESSION.commands.name}
    assert on("group", "scheduler") == {
        (owner_group("job"), "read"),
        (owner_group("pool"), "read"),
        (owner_group("session"), "read"),
        (reactor_group("scheduler", ""), "read"),
    }


def test_who_keeps_a_table_has_groups_of_its_own_and_no_other_service_reads_it() -> None:
    assert on("topic", "watcher", but="describe") == {
        (TELEMETRY.name, "read"),
        (WATCHES.name, "read"),
        (WATCHES.name, "write"),
        (ENDS.name, "read"),
        (ENDS.name, "write"),
        (SPEEDS.name, "read"),
        (SPEEDS.name, "write"),
        (PEERS.name, "read"),
        (PEERS.name, "write"),
        (JOB.commands.name, "write"),
        (JOB.journal.name, "read"),
        (LEVELS.name, "read"),
        (RELEASES.name, "write"),
    }
    assert on("group", "watcher") == {
        (processor_group("watcher"), "read"),
        (reactor_group("watcher", ""), "read"),
    }
    assert all(
        (WATCHES.name, "read") not in on("topic", other) for other in SERVICES if other != "watcher"
    )


def test_security_c1_no_service_deletes_kept_records() -> None:
    kept = {stream.journal.name for stream in STREAMS.values()}
    for service in SERVICES:
        assert not any(KafkaGrant("topic", name, "delete") in grants_of(service) for name in kept)


def test_every_command_has_a_sender_and_its_owner_is_one() -> None:
    for stream in STREAMS.values():
        assert stream.owner in stream.senders


def test_no_group_of_a_service_begins_like_that_of_another() -> None:
    names = [reactor_group(service, "") for service in SERVICES]
    names += [owner_group(stream) for stream in STREAMS]
    names.append(processor_group("watcher"))
    assert not any(a != b and a.startswith(b) for a in names for b in names)


def test_a_service_that_no_topic_names_has_no_rights() -> None:
    with pytest.raises(KeyError):
        grants_of("stranger")


def test_no_service_raises_the_level_of_the_log() -> None:
    assert all((LEVELS.name, "write") not in on("topic", service) for service in SERVICES)
