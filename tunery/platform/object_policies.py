"""Policies of S3 for each service, computed from the table of access to objects. Pure.

Amazon S3, MinIO and others give each account an identity policy. A policy of the bucket, which
names the accounts itself, says the same where a storage has no policies of accounts.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from schemas.access import OBJECTS
from schemas.streams import service_of
from schemas.topics import SERVICES, STREAMS

Verb: TypeAlias = Literal["read", "write", "delete"]
Policy: TypeAlias = dict[str, Any]

ACTIONS: Final[dict[Verb, str]] = {
    "read": "s3:GetObject",
    "write": "s3:PutObject",
    "delete": "s3:DeleteObject",
}
#: Everybody who knows the random id of an upload may end it. Only who deletes tenants may list it.
OF_ALL: Final = ("s3:ListBucket", "s3:AbortMultipartUpload")
LIST_UPLOADS: Final = "s3:ListBucketMultipartUploads"
EVERYTHING: Final = "t/"
VERSION: Final = "2012-10-17"


class ObjectGrant(NamedTuple):
    """Operations that a service may use on objects whose keys begin with one of the prefixes."""

    verbs: tuple[Verb, ...]
    prefixes: tuple[str, ...]


def object_grants(service: str) -> tuple[ObjectGrant, ...]:
    """Return all that a service may do with objects. Raises KeyError for an unknown service."""
    if service not in SERVICES:
        raise KeyError(service)
    prefixes = defaultdict[tuple[Verb, ...], list[str]](list)
    for row in OBJECTS:
        by_verb: dict[Verb, frozenset[str]] = {
            "read": row.reads,
            "write": row.writes,
            "delete": row.deletes,
        }
        if verbs := tuple(verb for verb, services in by_verb.items() if service in services):
            prefixes[verbs].append(row.prefix)
    return tuple(ObjectGrant(verbs, tuple(below)) for verbs, below in prefixes.items())


def identity_policy(bucket: str, service: str) -> Policy:
    """The policy of the account of one service, or of each node (`trainer`).

    Raises KeyError for a name that is no service.
    """
    archive = archive_bucket(bucket)
    read = [stream.name for stream in STREAMS.values() if service in stream.readers]
    return {
        "Version": VERSION,
        "Statement": [
            _of_all(bucket),
            *_of_service(bucket, service),
            *([_lists(archive), _segments(archive, *read)] if read else ()),
        ],
    }


def archive_bucket(bucket: str) -> str:
    """The bucket with old records of the journals, which no service may write or delete."""
    return f"{bucket}-archive"


def archive_policy(bucket: str, accounts: Sequence[str]) -> Policy:
    """The policy of the bucket of the archive: who reads a journal may read its segments."""
    archive = archive_bucket(bucket)
    readers = {
        stream.name: [account for account in accounts if service_of(account) in stream.readers]
        for stream in STREAMS.values()
    }
    lists = [account for account in accounts if any(account in each for each in readers.values())]
    return {
        "Version": VERSION,
        "Statement": [
            {**_short(_lists(archive)), "Principal": _alone(lists)},
            *(
                {**_short(_segments(archive, stream)), "Principal": _alone(named)}
                for stream, named in readers.items()
            ),
        ],
    }


def _lists(archive: str) -> Policy:
    resources = [f"arn:aws:s3:::{archive}"]
    return {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": resources}


def _segments(archive: str, *streams: str) -> Policy:
    resources = [f"arn:aws:s3:::{archive}/{stream}/*" for stream in streams]
    return {"Effect": "Allow", "Action": [ACTIONS["read"]], "Resource": resources}


def bucket_policy(bucket: str, accounts: Sequence[str]) -> Policy:
    """The policy of the bucket for accounts that are named as principals of Kafka are.

    As short as versitygw understands it: file systems keep only 4 KB of it.
    """
    by_service = defaultdict[str, list[str]](list)
    for account in accounts:
        by_service[service_of(account)].append(account)
    return {
        "Version": VERSION,
        "Statement": [
            {**_short(_of_all(bucket)), "Principal": list(accounts)},
            *(
                {**_short(statement), "Principal": _alone(named)}
                for service, named in by_service.items()
                for statement in _of_service(bucket, service)
            ),
        ],
    }


def _short(statement: Policy) -> Policy:
    every = statement["Action"] == list(ACTIONS.values())
    actions = "s3:*Object" if every else _alone(statement["Action"])
    return {**statement, "Action": actions, "Resource": _alone(statement["Resource"])}


def _alone(names: list[str]) -> list[str] | str:
    return names[0] if len(names) == 1 else names


def _of_all(bucket: str) -> Policy:
    resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
    return {"Effect": "Allow", "Action": list(OF_ALL), "Resource": resources}


def _of_service(bucket: str, service: str) -> Iterator[Policy]:
    for grant in object_grants(service):
        actions = [ACTIONS[verb] for verb in grant.verbs]
        resources = [f"arn:aws:s3:::{bucket}/{prefix}*" for prefix in grant.prefixes]
        if grant.prefixes[0] == EVERYTHING:
            actions.append(LIST_UPLOADS)
            resources.append(f"arn:aws:s3:::{bucket}")  # which has the uploads
        yield {"Effect": "Allow", "Action": actions, "Resource": resources}
