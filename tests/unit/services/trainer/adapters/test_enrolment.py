"""An agent without keys gets them for its token, and needs no token afterwards."""

import hashlib
import json
import os
from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.trainer.adapters.enrolment import (
    COMMAND_KEYS,
    KEPT,
    TRIES_MAX,
    enrol_or_exit,
    enrolled_variables,
)
from services.trainer.settings import TrainerSettings
from tunery.platform.node_settings import seal_settings
from tunery.platform.seal.boxes import seal_to
from tunery.platform.settings import SettingsError

pytestmark = pytest.mark.security

URL = "https://api.example.com"
KEYS = '{"sender":"node.n"}'
TOKEN = "t"


class Gateway:
    """Answers like the route: seals KEYS to whom has shown a token first.

    answers: what it says before that; None: nothing.
    """

    def __init__(
        self, *answers: httpx.Response | None, settings: str | None = None, invitation: str = "n"
    ) -> None:
        self.answers, self.settings = list(answers), settings
        self.invitation = invitation
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.used: dict[str, str] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.bodies.append(body)
        self.paths.append(str(request.url))
        if self.answers:
            answer = self.answers.pop(0)
            if answer is None:
                self.used.setdefault(body["token"], body["public_key"])
                raise httpx.ReadError("the connection broke")
            return answer
        if self.used.setdefault(body["token"], body["public_key"]) != body["public_key"]:
            return httpx.Response(401, json={"error": {"message": "used before"}})
        box = seal_to(bytes.fromhex(body["public_key"]), KEYS.encode(), b"s" * 32)
        sealed = {
            "sealed_keys": b64encode(box).decode(),
            "sealed_settings": self.settings,
            "invitation": self.invitation,
        }
        return httpx.Response(200, json=sealed)

    def keys(self, folder: Path, token: str | None = TOKEN, **changes: Any) -> str | None:
        return self.variables(folder, token, **changes).get(COMMAND_KEYS)

    def variables(self, folder: Path, token: str | None = TOKEN, **changes: Any) -> dict[str, str]:
        settings = TrainerSettings(**{"id": "n", "token": token, "gateway_url": URL, **changes})
        return enrolled_variables(
            settings, folder, transport=httpx.MockTransport(self), pause=lambda _: None
        )


def test_a_token_is_exchanged_once_and_a_restart_needs_none(tmp_path: Path) -> None:
    gateway, folder = Gateway(), tmp_path / "n"
    assert gateway.keys(folder) == KEYS
    assert gateway.paths == [f"{URL}/v1/nodes/n/enrol"]
    assert (folder / KEPT).stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert b'"t"' not in (folder / KEPT).read_bytes(), "only its hash is kept"
    assert gateway.keys(folder, None, gateway_url=None) == KEYS
    assert gateway.keys(folder) == KEYS, "the token may stay where it is"
    assert len(gateway.bodies) == 1


def test_a_lost_answer_is_asked_for_again_with_the_same_key_also_after_a_restart(
    tmp_path: Path,
) -> None:
    gateway = Gateway(*[None] * TRIES_MAX)
    with pytest.raises(SettingsError, match="does not answer"):
        gateway.keys(tmp_path)
    assert gateway.keys(tmp_path) == KEYS
    assert len({body["public_key"] for body in gateway.bodies}) == 1


def test_another_token_makes_other_keys(tmp_path: Path) -> None:
    gateway = Gateway()
    gateway.keys(tmp_path)
    gateway.keys(tmp_path, "later")
    first, second = gateway.bodies
    assert first["public_key"] != second["public_key"]
    assert second["token"] == "later"


def test_a_refusal_is_reported_once_and_outages_are_retried(tmp_path: Path) -> None:
    refused = httpx.Response(401, json={"error": {"message": "no invitation with this token"}})
    gateway = Gateway(refused)
    with pytest.raises(SettingsError, match=r"node \(n\).*401: no invitation with this token"):
        gateway.keys(tmp_path)
    assert len(gateway.bodies) == 1
    gateway = Gateway(httpx.Response(503, text="later"), httpx.Response(429, text="slowly"))
    assert gateway.keys(tmp_path) == KEYS


def test_a_token_may_stand_in_a_file(tmp_path: Path) -> None:
    gateway, file = Gateway(), tmp_path / "token"
    file.write_text("from a file\n")
    assert gateway.keys(tmp_path, None, token_file=file, gateway_url=f"{URL}/v1/") == KEYS
    assert gateway.bodies[0]["token"] == "from a file"
    assert gateway.paths == [f"{URL}/v1/nodes/n/enrol"]
    with pytest.raises(SettingsError, match="TOKEN_FILE"):
        gateway.keys(tmp_path, None, token_file=tmp_path / "nothing")


def test_settings_that_do_not_fit_and_damaged_files_are_named(tmp_path: Path) -> None:
    assert Gateway().keys(tmp_path, None) is None
    with pytest.raises(SettingsError, match="TUNERY_NODE_GATEWAY_URL"):
        Gateway().keys(tmp_path, gateway_url=None)
    strange = httpx.Response(200, json={"sealed_keys": b64encode(b"x" * 90).decode()})
    with pytest.raises(SettingsError, match="not sealed to this node"):
        Gateway(strange).keys(tmp_path)
    other = httpx.Response(200, text="<html>")
    with pytest.raises(SettingsError, match="TUNERY_NODE_GATEWAY_URL"):
        Gateway(other).keys(tmp_path)
    (tmp_path / KEPT).write_bytes(b"{")
    with pytest.raises(SettingsError, match="remove it"):
        Gateway().keys(tmp_path)


def test_an_agent_with_keys_sends_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMAND_KEYS, KEYS)
    monkeypatch.setenv("TUNERY_NODE_TOKEN", "t")
    enrol_or_exit()
    assert os.environ[COMMAND_KEYS] == KEYS


def test_kept_keys_are_set_before_the_agent_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(COMMAND_KEYS, raising=False)
    monkeypatch.setenv("TUNERY_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TUNERY_NODE_ID", "n")
    enrol_or_exit()
    assert COMMAND_KEYS not in os.environ
    Gateway().keys(tmp_path / "nodes" / "n")
    monkeypatch.setenv(COMMAND_KEYS, "")
    enrol_or_exit()
    assert os.environ[COMMAND_KEYS] == KEYS
    monkeypatch.setenv(COMMAND_KEYS, "")
    monkeypatch.setenv("TUNERY_NODE_TOKEN_FILE", str(tmp_path / "nothing"))
    with pytest.raises(SystemExit) as ended:
        enrol_or_exit()
    assert ended.value.code == 2
    assert "trainer cannot start" in capsys.readouterr().err


def test_what_is_kept_names_the_token_by_its_hash(tmp_path: Path) -> None:
    Gateway().keys(tmp_path)
    kept = json.loads((tmp_path / KEPT).read_bytes())
    assert kept["token_sha256"] == hashlib.sha256(b"t").hexdigest()


VARIABLES = {"TUNERY_KAFKA_PASSWORD": "p", "TUNERY_S3_SECRET_KEY": "s"}


def test_settings_come_sealed_with_the_half_of_the_token_that_is_not_sent(tmp_path: Path) -> None:
    gateway = Gateway(settings=seal_settings("n", "half", VARIABLES))
    assert gateway.variables(tmp_path, "shown.half") == {**VARIABLES, COMMAND_KEYS: KEYS}
    assert [body["token"] for body in gateway.bodies] == ["shown"]
    assert gateway.variables(tmp_path, None) == {**VARIABLES, COMMAND_KEYS: KEYS}
    again = Gateway()
    assert again.variables(tmp_path, "later") == {COMMAND_KEYS: KEYS}, "those of before are gone"


@pytest.mark.parametrize("token", ["shown", "shown.", "shown.other"])
def test_settings_that_the_token_does_not_open_are_named(tmp_path: Path, token: str) -> None:
    gateway = Gateway(settings=seal_settings("n", "half", VARIABLES))
    with pytest.raises(SettingsError, match="behind the dot"):
        gateway.keys(tmp_path, token)


@pytest.mark.parametrize(
    ("url", "plain", "is_used"),
    [
        ("http://127.0.0.1:8080", False, True),
        ("http://localhost:8080/v1", False, True),
        ("http://[::1]:8080", False, True),
        ("https://tunery.example.com", False, True),
        ("http://tunery.example.com", False, False),
        ("http://10.0.0.7:8080", False, False),
        ("http://127.0.0.1.example.com", False, False),
        ("http://127.0.0.1@example.com", False, False),
        ("http://tunery.example.com", True, True),
    ],
)
def test_a_token_is_not_sent_in_the_clear(
    tmp_path: Path, url: str, plain: bool, is_used: bool
) -> None:
    gateway, wanted = Gateway(), dict[str, Any](gateway_url=url, gateway_plain=plain)
    if is_used:
        assert gateway.keys(tmp_path, **wanted) == KEYS
        return
    with pytest.raises(SettingsError, match=r"is not encrypted.*TUNERY_NODE_GATEWAY_PLAIN"):
        gateway.keys(tmp_path, **wanted)
    assert gateway.bodies == []


def test_variables_that_are_set_are_left_and_empty_ones_are_filled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "nodes" / "n"
    Gateway(settings=seal_settings("n", "half", VARIABLES)).keys(folder, "shown.half")
    monkeypatch.setenv("TUNERY_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TUNERY_NODE_ID", "n")
    monkeypatch.setenv("TUNERY_KAFKA_PASSWORD", "own")
    monkeypatch.setenv("TUNERY_S3_SECRET_KEY", "")
    monkeypatch.setenv(COMMAND_KEYS, "")
    enrol_or_exit()
    assert os.environ["TUNERY_KAFKA_PASSWORD"] == "own"
    assert os.environ["TUNERY_S3_SECRET_KEY"] == "s"


def test_settings_of_several_nodes_open_with_their_token(tmp_path: Path) -> None:
    sealed = seal_settings("spot", "half", {"TUNERY_S3_BUCKET": "b"})
    gateway = Gateway(settings=sealed, invitation="spot")
    variables = gateway.variables(tmp_path, "t.half", id="spot-1")
    assert variables["TUNERY_S3_BUCKET"] == "b"
    assert gateway.paths == [f"{URL}/v1/nodes/spot-1/enrol"]
