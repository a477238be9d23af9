"""Rights of each service and node at the real S3: what the table names, and nothing else."""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
import pytest_asyncio
from botocore.exceptions import ClientError

from schemas.access import OBJECTS
from schemas.streams import NODE, service_of
from schemas.topics import SERVICES, STREAMS
from tests.stacks import temporary_data_dir
from tunery.local import own_servers
from tunery.local.errors import LocalError
from tunery.local.stack import Stack, stack
from tunery.platform.blobs.s3 import S3Blobs, S3Settings, connect
from tunery.platform.object_policies import bucket_policy

pytestmark = pytest.mark.security

NODES: Final = ("node.policies-a", "node.policies-b")
PRINCIPALS: Final = (*(name for name in SERVICES if name != NODE), *NODES)
ARCHIVE: Final = "tunery-archive"
REFUSED: Final = {"AccessDenied", "403", "Forbidden"}
#: servers that a stack with object storage alone does not start
ELSEWHERE: Final = {
    "TUNERY_KAFKA_BOOTSTRAP": "127.0.0.1:9",
    "TUNERY_POSTGRES_DSN": "postgresql://127.0.0.1:9/none",
    "TUNERY_VALKEY_URL": "redis://127.0.0.1:9/0",
}


def login(running: Stack, principal: str) -> Any:
    """A client of a principal, with the variables that its process gets; the operator's of ""."""
    return connect(settings_of(running, principal))


def settings_of(running: Stack, principal: str) -> S3Settings:
    variables = running.settings.environment(principal) if principal else running.env
    names = ("ENDPOINT", "ACCESS_KEY", "SECRET_KEY", "BUCKET")
    return S3Settings(*(variables[f"TUNERY_S3_{name}"] for name in names))


def outcome(operation: Any, bucket: str = "tunery", **arguments: Any) -> str:
    """ "" when it is done, else the code of the refusal."""
    try:
        operation(Bucket=bucket, **arguments)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def storage(servers: Stack) -> AsyncIterator[Stack]:
    """An object below each prefix, and accounts of two nodes."""
    await servers.add_accounts(list(NODES))
    root = login(servers, "")
    for row in OBJECTS:
        root.put_object(Bucket="tunery", Key=key(row.prefix), Body=b"secret")
    for name in STREAMS:
        root.put_object(Bucket=ARCHIVE, Key=f"{name}/policies", Body=b"records")
    yield servers


def key(prefix: str, name: str = "seed") -> str:
    return f"{prefix.replace('*', 'policies-tenant')}{name}"


def attempts(client: Any, prefix: str) -> dict[str, list[str]]:
    """Outcomes by verb of each request that would read, write or delete below a prefix."""
    fresh, seed = key(prefix, f"x/{uuid4().hex}"), key(prefix)
    begun = outcome(client.create_multipart_upload, Key=fresh)
    return {
        "reads": [outcome(client.get_object, Key=seed), outcome(client.head_object, Key=seed)],
        "writes": [outcome(client.put_object, Key=fresh, Body=b"other"), begun],
        "deletes": [outcome(client.delete_object, Key=key(prefix, f"x/{uuid4().hex}"))],
    }


@pytest.mark.parametrize("principal", PRINCIPALS)
def test_security_m3_a_principal_does_what_the_table_names(storage: Stack, principal: str) -> None:
    client, service = login(storage, principal), service_of(principal)
    everything = next(row for row in OBJECTS if row.prefix == "t/")
    wrong = list[tuple[str, str, list[str]]]()
    for row in OBJECTS:
        below = row.prefix.startswith("t/")
        for verb, outcomes in attempts(client, row.prefix).items():
            may = service in getattr(row, verb) or (below and service in getattr(everything, verb))
            codes = {code in REFUSED for code in outcomes}
            if codes != {not may} or (may and any(outcomes)):
                wrong.append((row.prefix, verb, outcomes))
    assert wrong == []
    client.close()


@pytest.mark.parametrize("principal", PRINCIPALS)
def test_security_m3_a_principal_reads_the_archive_of_its_journals_and_changes_none(
    storage: Stack, principal: str
) -> None:
    client, service = login(storage, principal), service_of(principal)
    for name, stream in STREAMS.items():
        segment = f"{name}/policies"
        refused = outcome(client.get_object, ARCHIVE, Key=segment)
        assert (refused == "") == (service in stream.readers), (name, refused)
        assert outcome(client.put_object, ARCHIVE, Key=segment, Body=b"others") in REFUSED
        assert outcome(client.delete_object, ARCHIVE, Key=segment) in REFUSED
    client.close()


@pytest.mark.parametrize("principal", PRINCIPALS)
def test_security_m3_no_principal_changes_rights_or_the_bucket(
    storage: Stack, principal: str
) -> None:
    client = login(storage, principal)
    policy = json.dumps(bucket_policy("tunery", [principal, "gateway"]))
    refusals = [
        outcome(client.put_bucket_policy, Policy=policy),
        outcome(client.delete_bucket_policy),
        outcome(client.get_bucket_policy),
        outcome(client.put_bucket_acl, ACL="public-read"),
        outcome(client.put_bucket_versioning, VersioningConfiguration={"Status": "Enabled"}),
        outcome(client.delete_bucket),
        outcome(client.put_object_acl, Key=key("t/*/models/"), ACL="public-read"),
        outcome(client.put_object_tagging, Key=key("t/*/models/"), Tagging={"TagSet": []}),
        outcome(client.list_object_versions),
    ]
    assert set(refusals) <= REFUSED, refusals
    with pytest.raises(ClientError):
        client.create_bucket(Bucket=f"other-{uuid4().hex[:8]}")
    client.close()


def test_security_m3_copies_and_joined_keys_are_refused_too(storage: Stack) -> None:
    source = {"Bucket": "tunery", "Key": key("t/*/models/")}
    ingest, node = login(storage, "ingest"), login(storage, NODES[0])
    copied = key("t/*/prepared/", "copied")
    begun = ingest.create_multipart_upload(Bucket="tunery", Key=copied)["UploadId"]
    part = {"Key": copied, "UploadId": begun, "PartNumber": 1, "CopySource": source}
    files = key("t/*/files/")
    several = node.delete_objects(
        Bucket="tunery", Delete={"Objects": [{"Key": files}, {"Key": source["Key"]}]}
    )
    refusals = [
        outcome(ingest.copy_object, Key=copied, CopySource=source),
        outcome(ingest.upload_part_copy, **part),
        outcome(node.get_object, Key="t/policies-tenant/models/../files/seed"),
        outcome(node.get_object, Key="t//policies-tenant/files/seed"),
        *(error["Code"] for error in several["Errors"]),
    ]
    assert all(refusals)
    assert len(several["Errors"]) == 2
    assert login(storage, "gateway").get_object(Bucket="tunery", Key=files)["Body"].read()


async def test_erasure_removes_all_of_a_tenant_with_the_account_of_its_service(
    storage: Stack,
) -> None:
    root = login(storage, "")
    for name in ("models/m/a", "checkpoints/j/1/a", "exports/feed/a"):
        root.put_object(Bucket="tunery", Key=f"t/policies-erased/{name}", Body=b"x")
    node = login(storage, NODES[0])
    node.create_multipart_upload(Bucket="tunery", Key="t/policies-erased/adapters/unfinished")
    for principal in PRINCIPALS:
        listed = outcome(login(storage, principal).list_multipart_uploads)
        assert (listed in REFUSED) == (principal != "ingest"), principal
    blobs = S3Blobs(settings_of(storage, "ingest"))
    kept = "t/policies-erased/exports/"
    assert await blobs.delete_below("t/policies-erased/", but=kept) == 3
    left = root.list_objects_v2(Bucket="tunery", Prefix="t/policies-erased/")["Contents"]
    assert [entry["Key"] for entry in left] == [f"{kept}feed/a"]
    await blobs.close()


def test_security_m3_a_service_cannot_use_the_account_of_another(storage: Stack) -> None:
    keys, where = storage.settings.keys, storage.settings
    stolen = [
        ("gateway", keys.s3_password(NODES[0])),
        (NODES[1], keys.s3_password(NODES[0])),
        (keys.s3_access_key, keys.s3_password("gateway")),
        ("node.policies-unknown", keys.s3_password("node.policies-unknown")),
    ]
    for access, secret in stolen:
        client = connect(S3Settings(where.s3_endpoint, access, secret, where.s3_bucket))
        assert outcome(client.get_object, Key=key("t/*/models/")), access
        client.close()


@pytest.mark.asyncio(loop_scope="function")
async def test_a_folder_of_one_account_for_all_is_carried_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unchecked(*_: Any) -> None:
        """Servers that are elsewhere, and not there."""

    monkeypatch.setattr(own_servers, "check", unchecked)
    with temporary_data_dir() as folder:
        async with stack(folder, environ=ELSEWHERE) as running:
            root = login(running, "")
            root.put_object(Bucket="tunery", Key="t/a/models/m", Body=b"kept")
            await running.stop("s3")
            earlier(folder)
            await running.start("s3")  # as after an update
            await asyncio.to_thread(check_carried_over, running)
            await running.add_accounts(["node.a"])
            running.kill("s3")
            await running.await_ready("s3")
            assert not outcome(login(running, "node.a").get_object, Key="t/a/models/m")
        async with stack(folder, environ=ELSEWHERE) as running:
            await asyncio.to_thread(check_carried_over, running)
            assert not outcome(login(running, "node.a").get_object, Key="t/a/models/m")
            with pytest.raises(LocalError, match="no room for the rights"):
                await running.add_accounts([f"node.{number:0100}" for number in range(800)])
        async with stack(folder, environ=ELSEWHERE) as running:  # it starts all the same
            await asyncio.to_thread(check_carried_over, running)
            assert not outcome(login(running, "node.a").get_object, Key="t/a/models/m")


def earlier(folder: Path) -> None:
    """Make the folder what a version without accounts left."""
    server = folder / "s3"
    shutil.rmtree(server / "accounts")
    bucket = server / "objects" / "tunery"
    policies = [name for name in os.listxattr(bucket) if "policy" in name]
    assert policies
    for name in policies:
        os.removexattr(bucket, name)


def check_carried_over(running: Stack) -> None:
    assert not outcome(login(running, "gateway").get_object, Key="t/a/models/m")
    assert outcome(login(running, "notifier").get_object, Key="t/a/models/m") in REFUSED
