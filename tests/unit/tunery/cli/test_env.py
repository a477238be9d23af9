"""`tunery env`: what a shell evaluates."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tunery.cli.main import main
from tunery.local import ports, secrets
from tunery.local.paths import DataDir

ENVIRON = {"OPENAI_BASE_URL": "http://api/v1", "OPENAI_API_KEY": "a'b c"}


def test_first_hour_a_shell_gets_address_and_key() -> None:
    printed = CliRunner().invoke(main, ["env"], env=ENVIRON).output
    script = f'{printed}\nprintf "%s|%s" "$OPENAI_BASE_URL" "$OPENAI_API_KEY"'
    shown = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout == "http://api/v1|a'b c"
    assert json.loads(CliRunner().invoke(main, ["env", "--json"], env=ENVIRON).output) == ENVIRON


def test_first_hour_without_an_api_the_fix_is_named(tmp_path: object) -> None:
    done = CliRunner().invoke(main, ["env", "--data-dir", str(tmp_path)])
    assert (done.exit_code, "start a stack with `tunery up`" in done.output) == (1, True)


@pytest.fixture
def stack(tmp_path: Path) -> DataDir:
    folders = DataDir(tmp_path)
    folders.create()
    ports.assign(folders.ports, lambda _: None, ports.ANY)
    secrets.load_or_create(folders.secrets)
    return folders


def test_first_hour2_u27_programs_get_a_key_of_the_tenant(
    stack: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is created once, readable by its owner alone, and replaced once it is revoked."""
    api = ScriptedKeys()
    monkeypatch.setattr("tunery.client.Api", lambda _url, _key: api)
    words = ["env", "--json", "--data-dir", str(stack.root)]

    def key() -> str:
        return str(json.loads(CliRunner().invoke(main, words).output)["OPENAI_API_KEY"])

    assert (key(), key()) == ("secret-1", "secret-1")
    assert api.created[0]["scopes"] == ["read", "write"]
    assert stack.secrets.with_name("tenant-key.json").stat().st_mode & 0o777 == 0o600
    api.revoked.add("key-1")
    assert (key(), key()) == ("secret-2", "secret-2")
    operators = json.loads(CliRunner().invoke(main, [*words, "--operator"], env=ENVIRON).output)
    assert operators["OPENAI_API_KEY"] == secrets.load(stack.secrets).admin_key


def test_the_operators_key_needs_a_stack(tmp_path: Path) -> None:
    words = ["env", "--operator", "--data-dir", str(tmp_path)]
    done = CliRunner().invoke(main, words, env=ENVIRON)
    assert (done.exit_code, "start a stack with `tunery up`" in done.output) == (1, True)


class ScriptedKeys:
    """The keys of one tenant."""

    def __init__(self) -> None:
        self.created, self.revoked = list[dict[str, Any]](), set[str]()

    def __enter__(self) -> "ScriptedKeys":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def create_key(self, _tenant: str, body: dict[str, Any]) -> dict[str, str]:
        self.created.append(body)
        number = len(self.created)
        return {"id": f"key-{number}", "key": f"secret-{number}"}

    def keys(self, _tenant: str) -> list[dict[str, Any]]:
        ids = (f"key-{number + 1}" for number in range(len(self.created)))
        return [{"id": key, "revoked_at": 1 if key in self.revoked else None} for key in ids]
