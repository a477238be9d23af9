"""Policies of object storage follow from the table, and fit where they are kept."""

import json
from typing import Any

import pytest

from schemas.access import OBJECTS
from schemas.streams import NODE, service_of
from schemas.topics import SERVICES, STREAMS
from tunery.platform.object_policies import (
    ACTIONS,
    OF_ALL,
    archive_policy,
    bucket_policy,
    identity_policy,
    object_grants,
)

pytestmark = pytest.mark.security

ATTRIBUTE_BYTES_MAX = 4_000  # of a folder on ext4; versitygw has some of its own there
NODES = tuple(f"node.node-gpu-machine-{number}" for number in range(4))
ACCOUNTS = (*(name for name in SERVICES if name != NODE), *NODES)


def as_list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else value


def allowed(policy: dict[str, Any], account: str = "") -> set[tuple[str, str]]:
    """Pairs of action and resource; of an account where the policy names some."""
    return {
        (action, resource)
        for statement in policy["Statement"]
        if not account or account in as_list(statement["Principal"])
        for word in as_list(statement["Action"])
        for action in (ACTIONS.values() if word == "s3:*Object" else [word])
        for resource in as_list(statement["Resource"])
    }


def test_each_stream_has_snapshots_of_its_owner_alone() -> None:
    rows = {row.prefix: row for row in OBJECTS}
    for stream in STREAMS.values():
        row = rows[f"snapshots/{stream.name}/"]
        assert row.writes == row.deletes == {stream.owner}
        assert row.reads <= {stream.owner, NODE}


def test_names_of_the_table_are_services_and_prefixes_end_with_a_slash() -> None:
    for row in OBJECTS:
        assert row.prefix.endswith("/")
        assert row.reads | row.writes | row.deletes <= set(SERVICES)


def test_a_service_that_no_line_names_may_do_nothing_with_contents() -> None:
    assert object_grants("notifier") == ()
    beside = {
        pair for pair in allowed(identity_policy("b", "notifier")) if "archive" not in pair[1]
    }
    assert {action for action, _ in beside} == set(OF_ALL)
    with pytest.raises(KeyError):
        object_grants("mailer")


def test_the_policy_of_the_bucket_says_what_those_of_the_accounts_say() -> None:
    whole, archive = bucket_policy("tunery", ACCOUNTS), archive_policy("tunery", ACCOUNTS)
    for service in SERVICES:
        account = NODES[0] if service == NODE else service
        both = allowed(whole, account) | allowed(archive, account)
        assert both == allowed(identity_policy("tunery", service)), service


def test_who_reads_a_journal_may_read_its_archive_and_nobody_writes_there() -> None:
    archive = archive_policy("tunery", ACCOUNTS)
    for stream in STREAMS.values():
        segments = ("s3:GetObject", f"arn:aws:s3:::tunery-archive/{stream.name}/*")
        readers = {each for each in ACCOUNTS if segments in allowed(archive, each)}
        assert readers == {each for each in ACCOUNTS if service_of(each) in stream.readers}
    assert {action for action, _ in allowed(archive)} == {"s3:ListBucket", "s3:GetObject"}


def test_rights_of_services_and_four_nodes_fit_into_the_attributes_of_a_folder() -> None:
    for policy in (bucket_policy("tunery", ACCOUNTS), archive_policy("tunery", ACCOUNTS)):
        written = json.dumps(policy, separators=(",", ":"))
        assert len(written) < ATTRIBUTE_BYTES_MAX - 250
