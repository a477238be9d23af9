"""Accounts of the embedded S3 are made equal to what they should be, and refusals are named."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import boto3
import httpx
import pytest
from botocore.exceptions import ClientError

from schemas.topics import SERVICES
from tunery.local import s3_accounts
from tunery.local.errors import LocalError
from tunery.local.secrets import Secrets, load_or_create

pytestmark = pytest.mark.security


class Server:
    """Stands in for versitygw: accounts by name, and the requests that came."""

    def __init__(self, accounts: dict[str, str]) -> None:
        self.accounts, self.changes, self.is_full = accounts, list[str](), False

    def answer(self, request: httpx.Request) -> httpx.Response:
        assert "Signature=" in request.headers["authorization"]
        name = request.url.params.get("access", "")
        match request.url.path:
            case "/list-users":
                listed = "".join(
                    f"<Accounts><Access>{name}</Access><Secret>{secret}</Secret></Accounts>"
                    for name, secret in self.accounts.items()
                )
                return httpx.Response(200, text=f"<Result>{listed}</Result>")
            case "/create-user":
                body = ElementTree.fromstring(request.content)  # noqa: S314  # our own
                name = body.findtext("Access", "")
                assert body.findtext("Role") == "user"
                self.accounts[name] = body.findtext("Secret", "")
            case "/update-user":
                body = ElementTree.fromstring(request.content)  # noqa: S314  # our own
                self.accounts[name] = body.findtext("Secret", "")
            case "/delete-user":
                del self.accounts[name]
            case path:
                pytest.fail(f"{path} was asked")
        self.changes.append(f"{request.url.path} {name}")
        return httpx.Response(200)


@contextmanager
def served(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Requests reach the server; yields policies of the bucket of objects that were written."""
    policies, archive, client = list[str](), list[str](), httpx.Client

    def connected(**settings: Any) -> httpx.Client:
        return client(transport=httpx.MockTransport(server.answer), **settings)

    class Bucket:
        def get_bucket_policy(self, **_: str) -> Any:
            if not policies:
                answer: Any = {"Error": {"Code": "NoSuchBucketPolicy"}}
                raise ClientError(answer, "GetBucketPolicy")
            return {"Policy": policies[-1]}

        def put_bucket_policy(self, **wanted: str) -> None:
            if server.is_full:
                answer: Any = {"Error": {}, "ResponseMetadata": {"HTTPStatusCode": 500}}
                raise ClientError(answer, "PutBucketPolicy")
            (policies if wanted["Bucket"] == "tunery" else archive).append(wanted["Policy"])

        def close(self) -> None:
            pass

    with monkeypatch.context() as patched:
        patched.setattr(httpx, "Client", connected)
        patched.setattr(boto3, "client", lambda *_, **__: Bucket())
        yield policies
    assert len(archive) == len(policies)


@pytest.fixture
def keys(tmp_path: Path) -> Secrets:
    return load_or_create(tmp_path / "secrets.json")


def test_accounts_are_made_corrected_and_removed_once(
    keys: Secrets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server({"gateway": "stale", "gone": "x", "eval": keys.s3_password("eval")})
    with served(server, monkeypatch) as policies:
        s3_accounts.provide_accounts(tmp_path, 7, keys, "tunery", ["node.a"])
        names = {*SERVICES, "node.a"} - {"trainer"}
        assert server.accounts == {name: keys.s3_password(name) for name in names}
        assert {"/update-user gateway", "/delete-user gone"} <= set(server.changes)
        assert not any("eval" in change for change in server.changes)
        server.changes.clear()
        server.accounts["node.left"] = "by a crash"
        s3_accounts.provide_accounts(tmp_path, 7, keys, "tunery")
        assert server.changes == ["/delete-user node.left"]
    assert len(set(policies)) == 1
    assert "node.a" in policies[0]


def test_a_node_without_room_is_refused_and_the_next_start_goes_on(
    keys: Secrets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, many = Server({}), len(SERVICES) + 1  # without `trainer`, with two nodes
    with served(server, monkeypatch):
        s3_accounts.provide_accounts(tmp_path, 7, keys, "tunery", ["node.a"])
        server.is_full = True
        with pytest.raises(LocalError, match=f"rights of {many} services and nodes"):
            s3_accounts.provide_accounts(tmp_path, 7, keys, "tunery", ["node.b"])
        server.is_full = False
        s3_accounts.provide_accounts(tmp_path, 7, keys, "tunery")
    assert "node.a" in server.accounts
    assert "node.b" not in server.accounts


def test_no_password_leads_to_another(keys: Secrets) -> None:
    passwords = {keys.s3_password(name) for name in ("gateway", "eval", "node.a", "node.b")}
    assert len(passwords | {keys.s3_secret_key, keys.kafka_password("gateway")}) == 6
