"""Accounts of the embedded S3, and their rights: one for each service and node.

versitygw keeps accounts in a file below its folder, and takes administrative requests of the root
account at its port, signed as all others are.
"""

import fcntl
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote
from xml.etree import ElementTree

from schemas.streams import NODE, node_of
from schemas.topics import SERVICES
from tunery.local.errors import LocalError
from tunery.local.ports import HOST
from tunery.local.secrets import Secrets
from tunery.platform.object_policies import (
    Policy,
    archive_bucket,
    archive_policy,
    bucket_policy,
)

if TYPE_CHECKING:
    import httpx

    from tunery.platform.blobs.s3 import S3Settings

REGION: Final = "us-east-1"
REQUEST_S_MAX: Final = 10
ROLE: Final = "user"  # may do what a policy says, and make no buckets
SERVER_FAULT: Final = 500  # versitygw says no more when the file system refuses an attribute
ATTRIBUTE_BYTES_MAX: Final = 65_536  # of Linux; file systems may keep less


def provide_accounts(
    folder: Path, port: int, keys: Secrets, bucket: str, nodes: Sequence[str] = ()
) -> None:
    """Make accounts and rights those of the services, of nodes that have some, and of these nodes.

    folder: folder of the server, for one process at a time. nodes: principals. It can be
    repeated. Raises LocalError where the rights of so many nodes have no room, httpx.HTTPError and
    what botocore raises where the server does not answer.
    """
    import httpx

    from tunery.platform.blobs.s3 import S3Settings, connect

    root = S3Settings(
        f"http://{HOST}:{port}", keys.s3_access_key, keys.s3_secret_key, bucket, REGION
    )
    with (
        (folder / "accounts.lock").open("a") as lock,
        httpx.Client(base_url=root.endpoint, timeout=REQUEST_S_MAX, trust_env=False) as client,
        closing(connect(root)) as storage,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        present = _accounts(_ask(client, root, "/list-users"))
        known = {name for name in _named(storage, bucket) & present.keys() if node_of(name)}
        principals = [name for name in SERVICES if name != NODE] + sorted(known.union(nodes))
        wanted = {name: keys.s3_password(name) for name in principals}
        for name in present.keys() - wanted.keys():
            _ask(client, root, f"/delete-user?access={quote(name, safe='')}")
        for name, secret in wanted.items():
            if name not in present:
                body = _element("Account", {"Access": name, "Secret": secret, "Role": ROLE})
                _ask(client, root, "/create-user", body)
            elif present[name] != secret:
                body = _element("MutableProps", {"Secret": secret})
                _ask(client, root, f"/update-user?access={quote(name, safe='')}", body)
        _put_policy(storage, bucket, bucket_policy(bucket, principals), principals)
        archive = archive_bucket(bucket)
        _put_policy(storage, archive, archive_policy(bucket, principals), principals)


def _named(storage: Any, bucket: str) -> set[str]:
    """Accounts that the present policy names. One that it does not name was left by a crash, or
    had no room.
    """
    from botocore.exceptions import ClientError

    try:
        policy = json.loads(storage.get_bucket_policy(Bucket=bucket)["Policy"])
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchBucketPolicy":
            raise
        return set()
    named = (statement["Principal"] for statement in policy["Statement"])
    return {name for names in named for name in ([names] if isinstance(names, str) else names)}


def _put_policy(storage: Any, bucket: str, wanted: Policy, principals: Sequence[str]) -> None:
    """Raises LocalError where the file system has no room for it."""
    from botocore.exceptions import ClientError

    policy = json.dumps(wanted, separators=(",", ":"))
    try:
        storage.put_bucket_policy(Bucket=bucket, Policy=policy)
    except ClientError as error:
        is_fault = error.response["ResponseMetadata"]["HTTPStatusCode"] >= SERVER_FAULT
        if not is_fault and len(policy) < ATTRIBUTE_BYTES_MAX:
            raise
        raise LocalError(
            f"the embedded S3 has no room for the rights of {len(principals)} services and nodes: "
            f"{len(policy)} bytes in the attributes of a folder ({error})",
            "remove the folder s3/accounts of the data directory while the stack is down, if there "
            "are nodes that are gone; or use a data directory on XFS, or an S3 of your own",
        ) from error


def _ask(client: "httpx.Client", root: "S3Settings", url: str, body: bytes = b"") -> bytes:
    """One administrative request. Raises httpx.HTTPError."""
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    request = AWSRequest("PATCH", f"{root.endpoint}{url}", data=body)
    S3SigV4Auth(Credentials(root.access_key, root.secret_key), "s3", root.region).add_auth(request)
    answer = client.patch(url, content=body, headers=dict(request.headers.items()))
    answer.raise_for_status()
    return answer.content


def _accounts(listed: bytes) -> Mapping[str, str]:
    """Names and secrets of a listing."""
    root: Any = ElementTree.fromstring(listed)  # noqa: S314  # our own server's
    return {
        account.findtext("Access", ""): account.findtext("Secret", "")
        for account in root.iter("Accounts")
    }


def _element(name: str, fields: Mapping[str, str]) -> bytes:
    element = ElementTree.Element(name)
    for field, value in fields.items():
        ElementTree.SubElement(element, field).text = value
    return ElementTree.tostring(element)
