"""`tunery node`: what each command asks the API for, and what it prints."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from tunery.cli import _api
from tunery.cli.main import main
from tunery.cli.node import NodeAccounts
from tunery.client import Api
from tunery.local import ports
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.local.secrets import load_or_create
from tunery.platform.bus import preparation
from tunery.platform.node_settings import halves_of, open_settings
from tunery.runtime.bus.abstract import Unavailable

NODE: dict[str, Any] = {
    "id": "gpu-07",
    "object": "node",
    "pool": "default",
    "status": "cordoned",
    "code": "jobs_failed",
    "reason": "3 different jobs in a row failed on it.",
    "device": "cuda",
    "accelerator": "h200",
    "price_class": "on_demand",
    "warned": False,
    "taints": ["research"],
    "domain": "rack-3",
    "interconnect": "nvlink",
    "device_faults": [],
    "slots": 8,
    "memory_bytes": 80_000_000_000,
    "registered_at": 1_762_700_400,
    "seen_at": 1_762_700_400,
}
INVITATION: dict[str, Any] = {
    "id": "gpu-08",
    "object": "node.invitation",
    "pool": "default",
    "invited_at": 1_762_700_400,
    "invited_by": "bootstrap",
    "expires_at": 1_762_704_000,
    "enrolled_at": None,
    "key_number": None,
    "uses": None,
    "used": 0,
}


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[Result, list[httpx.Request]]:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        invited = request.url.path == "/v1/node_invitations"
        spot = {**INVITATION, "id": "spot", "uses": 40, "used": 3}
        done = {**INVITATION, "id": "gpu-09", "enrolled_at": 1}
        data = [INVITATION, done, spot] if invited else [NODE]
        listed = {"data": data, "has_more": False, "last_id": "gpu-07"}
        if request.url.path.endswith(("/gpu-08/withdraw", "/revoke")):
            return httpx.Response(200, json=INVITATION)
        if request.url.path.endswith("/invite"):
            return httpx.Response(200, json={**INVITATION, "token": "tun-node-x"})
        return httpx.Response(200, json=listed if request.method == "GET" else NODE)

    def connected(url: str, key: str) -> Api:
        return Api(url, key, transport=httpx.MockTransport(handle))

    monkeypatch.setattr("tunery.client.Api", connected)
    environ = {"OPENAI_BASE_URL": "http://api/v1", "OPENAI_API_KEY": "k"}
    return CliRunner().invoke(main, ["node", *words], env=environ), seen


def test_nodes_are_listed_with_status_and_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    done, (request, invitations) = run(["list"], monkeypatch)
    assert (done.exit_code, request.url.path) == (0, "/v1/nodes")
    assert invitations.url.path == "/v1/node_invitations"
    until = _api.moment(INVITATION["expires_at"])
    assert f"gpu-08 is invited until {until}, by key bootstrap" in done.output
    assert f"spot-… (3 of 40 have joined) is invited until {until}" in done.output
    assert "gpu-09" not in done.output, "its token was used"
    assert "cordoned" in done.output
    assert "80 GB" in done.output
    assert "h200" in done.output
    assert "on-demand" in done.output
    assert "research" in done.output
    assert " now " in done.output
    assert "jobs in a row failed" in done.output
    done, _ = run(["list", "--json"], monkeypatch)
    assert json.loads(done.output) == [NODE]


@pytest.mark.parametrize(
    ("status", "is_now"), [("up", True), ("noticed", True), ("lost", False), ("retired", False)]
)
def test_review2_p22_a_node_that_beats_was_seen_now(
    status: str, is_now: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NODE, "status", status)
    done, _ = run(["list"], monkeypatch)
    assert (" now " in done.output, _api.moment(NODE["seen_at"]) in done.output) == (
        is_now,
        not is_now,
    )


@pytest.mark.parametrize("order", ["cordon", "uncordon", "drain"])
def test_an_order_is_sent_and_its_outcome_shown(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, (request,) = run([order, "gpu-07"], monkeypatch)
    path = f"/v1/nodes/gpu-07/{order}"
    assert (done.exit_code, request.method, request.url.path) == (0, "POST", path)
    assert "cordoned" in done.output


def test_security_c2_a_withdrawn_key_is_shown_with_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(NODE, "keys_withdrawn", 1)
    done, (request,) = run(["withdraw", "gpu-07"], monkeypatch)
    assert (done.exit_code, request.url.path) == (0, "/v1/nodes/gpu-07/withdraw")
    assert "node.gpu-07#2" in done.output


def test_a_node_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    done, (request,) = run(["forget", "gpu-07"], monkeypatch)
    assert (done.exit_code, request.method, request.url.path) == (0, "DELETE", "/v1/nodes/gpu-07")
    assert "forgotten" in done.output


def test_devices_with_a_fault_are_listed_beside_their_node(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [(2, "xid", "Xid 79."), (3, "throttled", "Hot."), (5, "throttled", "Hot.")]
    faults = [{"device": device, "code": code, "reason": text} for device, code, text in said]
    monkeypatch.setitem(NODE, "device_faults", faults)
    monkeypatch.setitem(NODE, "reason", None)
    monkeypatch.setenv("COLUMNS", "300")
    done, _ = run(["list"], monkeypatch)
    assert "5 of 8" in done.output
    assert "device 2: Xid 79. devices 3, 5: Hot." in done.output


@pytest.mark.parametrize(
    ("words", "body"),
    [
        ([], {"expires_in_seconds": 3_600}),
        (["--expires", "30m", "--pool", "a"], {"expires_in_seconds": 1_800, "pool": "a"}),
        (["--expires", "2d"], {"expires_in_seconds": 172_800}),
    ],
)
def test_a_token_is_made_and_shown_with_its_end(
    words: list[str], body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    done, (request,) = run(["enrol", "gpu-08", *words], monkeypatch)
    assert (done.exit_code, request.url.path) == (0, "/v1/nodes/gpu-08/invite")
    assert json.loads(request.content) == body
    assert "tun-node-x" in done.output
    assert _api.moment(INVITATION["expires_at"]) in done.output
    done, _ = run(["enrol", "gpu-08", "--json"], monkeypatch)
    assert json.loads(done.output)["token"] == "tun-node-x"


def test_several_nodes_are_invited_with_one_token_which_is_revoked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done, (request,) = run(["enrol", "spot", "--uses", "40", "--expires", "2d"], monkeypatch)
    assert done.exit_code == 0, done.output
    assert json.loads(request.content) == {"expires_in_seconds": 172_800, "uses": 40}
    assert "40, named spot-…" in done.output
    for wrong in ("0", "501", "many"):
        done, asked = run(["enrol", "spot", "--uses", wrong], monkeypatch)
        assert (done.exit_code, asked) == (2, []), wrong
    done, (request,) = run(["revoke", "spot"], monkeypatch)
    assert (done.exit_code, request.url.path) == (0, "/v1/nodes/spot/revoke")
    assert "nobody joins by its token" in done.output


def test_settings_are_sealed_with_a_half_of_the_token_that_is_not_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "gpu-08.env"
    file.write_text("# of this node\n\nTUNERY_S3_ACCESS_KEY=a\nTUNERY_S3_SECRET_KEY=s=s\n")
    done, (request,) = run(["enrol", "gpu-08", "--settings", str(file), "--json"], monkeypatch)
    shown, half = halves_of(json.loads(done.output)["token"])
    assert shown == "tun-node-x"
    assert half.encode() not in request.content
    sealed = json.loads(request.content)["sealed_settings"]
    variables = {"TUNERY_S3_ACCESS_KEY": "a", "TUNERY_S3_SECRET_KEY": "s=s"}
    assert open_settings("gpu-08", half, sealed) == variables
    done, _ = run(["enrol", "gpu-08", "--settings", str(file)], monkeypatch)
    assert "TUNERY_S3_ACCESS_KEY, TUNERY_S3_SECRET_KEY" in done.output
    assert "s=s" not in done.output


@pytest.mark.parametrize(
    ("line", "why"), [("export x", "no line NAME=value"), ("LD_PRELOAD=x", "only TUNERY_KAFKA_")]
)
def test_settings_that_cannot_be_given_are_refused(
    line: str, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "gpu-08.env"
    file.write_text(line)
    done, asked = run(["enrol", "gpu-08", "--settings", str(file)], monkeypatch)
    assert (done.exit_code, asked) == (2, [])
    assert why in done.output


def test_withdrawn_keys_of_a_node_that_never_registered_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(INVITATION, "keys_withdrawn", 1)
    done, _ = run(["withdraw", "gpu-08"], monkeypatch)
    assert done.exit_code == 0, done.output
    assert "never registered" in done.output
    assert "node.gpu-08#2" in done.output


@pytest.mark.parametrize("wrong", ["soon", "1", "h", "-1h", "1.5h", ""])
def test_a_time_that_is_none_is_refused(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done, asked = run(["enrol", "gpu-08", "--expires", wrong], monkeypatch)
    assert (done.exit_code, asked) == (2, [])
    assert "like 1h" in done.output


pytestmark = pytest.mark.security

PORTS = {"gateway": 1, "kafka": 2, "kafka-controller": 3, "postgres": 4, "valkey": 5, "s3": 6}
KAFKA = {
    "TUNERY_KAFKA_BOOTSTRAP": "kafka.example.com:9093",
    "TUNERY_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "TUNERY_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
    "TUNERY_KAFKA_USERNAME": "operator",
    "TUNERY_KAFKA_PASSWORD": "of the operator",
}
S3 = {
    f"TUNERY_S3_{name}": f"https://own.example.com/{name}"
    for name in ("ENDPOINT", "ACCESS_KEY", "SECRET_KEY", "BUCKET")
}


@pytest.fixture
def folders(tmp_path: Path) -> DataDir:
    """Data directory of a stack that was started before."""
    folders = DataDir(tmp_path)
    load_or_create(folders.secrets)
    ports.assign(folders.ports, lambda _: None, PORTS, lambda _: True)
    return folders


def test_beside_a_stack_a_node_has_the_passwords_of_its_agent(folders: DataDir) -> None:
    keys, known = load_or_create(folders.secrets), NodeAccounts(folders, "a").variables
    assert known["TUNERY_KAFKA_USERNAME"] == known["TUNERY_S3_ACCESS_KEY"] == "node.a"
    assert known["TUNERY_KAFKA_PASSWORD"] == keys.kafka_password("node.a")
    assert known["TUNERY_S3_SECRET_KEY"] == keys.s3_password("node.a")
    assert known["TUNERY_S3_ENDPOINT"] == "http://127.0.0.1:6"
    assert keys.s3_secret_key not in known.values()


def test_servers_of_the_operators_own_get_a_new_password_and_no_account_of_s3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**KAFKA, **S3}.items():
        monkeypatch.setenv(name, value)
    first, second = (NodeAccounts(DataDir(tmp_path), "a").variables for _ in range(2))
    for name in S3:  # the machine of an operator need not know them
        monkeypatch.delenv(name)
    assert NodeAccounts(DataDir(tmp_path), "a").variables.keys() == first.keys()
    assert first["TUNERY_KAFKA_PASSWORD"] != second["TUNERY_KAFKA_PASSWORD"]
    assert {**first, "TUNERY_KAFKA_PASSWORD": ""} == {
        **KAFKA,
        "TUNERY_KAFKA_USERNAME": "node.a",
        "TUNERY_KAFKA_PASSWORD": "",
    }


def test_a_kafka_without_passwords_and_one_that_is_not_there_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**KAFKA, **S3}.items():
        monkeypatch.setenv(name, value)

    async def refuse(*_: object) -> None:
        raise Unavailable("no broker")

    monkeypatch.setattr(preparation, "add_account", refuse)
    with pytest.raises(LocalError, match=r"account of node\.a was not made: no broker"):
        NodeAccounts(DataDir(tmp_path), "a").create()
    for name in KAFKA:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TUNERY_KAFKA_BOOTSTRAP", "kafka.example.com:9092")
    with pytest.raises(LocalError, match="used without"):
        NodeAccounts(DataDir(tmp_path), "a")
