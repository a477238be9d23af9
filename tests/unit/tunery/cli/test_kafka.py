"""`tunery kafka`: what it lists, and what it refuses before it connects."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from schemas.topics import ACCOUNT, SERVICES
from tunery.cli.main import main
from tunery.local.secrets import load_or_create
from tunery.local.stack import KNOWN
from tunery.platform.bus.sender_keys import keys_of
from tunery.runtime.bus.signing import read_keys


def test_rights_are_listed_for_each_service() -> None:
    done = CliRunner().invoke(main, ["kafka", "grants", "--json"])
    rows = json.loads(done.output)
    assert {row["service"] for row in rows} == set(SERVICES)
    journal = [row for row in rows if row["name"] == ACCOUNT.journal.name]
    assert [row["service"] for row in journal if row["operation"] == "write"] == ["billing"]
    shown = CliRunner().invoke(main, ["kafka", "grants"]).output
    assert "tunery.billing.reacts.*" in shown


def test_a_principal_that_no_service_has_is_refused(tmp_path: Path) -> None:
    arguments = ["kafka", "prepare", "--data-dir", str(tmp_path), "--principal", "mailer=x"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert "use SERVICE=NAME, with one of billing" in done.output


def keys_printed(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["kafka", "keys", *arguments])
    assert done.exit_code == code, done.output
    return done.output


def test_keys_of_a_principal_are_printed_for_its_environment(tmp_path: Path) -> None:
    file = tmp_path / "secret.txt"
    file.write_text("s" * 32 + "\n")
    arguments = ("node.gpu-07", "--secret", str(file), "--signed-since", "7")
    line = keys_printed(*arguments).strip()
    name, _, value = line.partition("=")
    assert name == "TUNERY_COMMAND_KEYS"
    assert read_keys(value.strip("'")) == keys_of(b"s" * 32, "node.gpu-07", 7)
    assert json.loads(keys_printed(*arguments, "--json")) == {name: value.strip("'")}


def test_keys_of_a_stack_are_those_of_its_processes(tmp_path: Path) -> None:
    secrets = load_or_create(tmp_path / "secrets.json")
    line = keys_printed("gateway", "--data-dir", str(tmp_path)).strip()
    assert read_keys(line.partition("=")[2].strip("'")) == secrets.sender_keys("gateway")


def test_keys_are_refused_without_a_good_secret_or_name(tmp_path: Path) -> None:
    there = ("--data-dir", str(tmp_path))
    assert "there is no stack" in keys_printed("gateway", *there, code=1)
    short = tmp_path / "secret.txt"
    short.write_text("s" * 31)
    assert "openssl rand" in keys_printed("gateway", "--secret", str(short), *there, code=1)
    load_or_create(tmp_path / "secrets.json")
    assert "'mailer' is no sender" in keys_printed("mailer", *there, code=2)


def test_files_has_one_for_each_process_and_keeps_those_that_are_there(tmp_path: Path) -> None:
    secret, folder = tmp_path / "secret.txt", tmp_path / "files"
    secret.write_text("0123456789abcdef" * 4, encoding="ascii")
    folder.mkdir()
    (folder / "billing.env").write_text("TUNERY_KAFKA_PASSWORD=mine\n", encoding="utf-8")
    words = ["kafka", "files", str(folder), "--secret", str(secret), "--node", "gpu-07"]
    written = CliRunner().invoke(main, [*words, "--json"])
    assert len(json.loads(written.output)) == len(KNOWN) - 1  # one was there
    files = {path.stem: path for path in folder.iterdir()}
    assert files.keys() == {*KNOWN, "node.gpu-07"} - {"trainer"}
    assert files["billing"].read_text(encoding="utf-8") == "TUNERY_KAFKA_PASSWORD=mine\n"
    node = dict(line.split("=", 1) for line in files["node.gpu-07"].read_text().splitlines())
    assert read_keys(node["TUNERY_COMMAND_KEYS"]).sender == node["TUNERY_KAFKA_USERNAME"]
    assert (node["TUNERY_NODE_ID"], node["TUNERY_METRICS_PORT"]) == ("gpu-07", "9403")
    assert "TUNERY_METRICS_PORT=9400\n" in files["gateway"].read_text(encoding="utf-8")
    assert files["gateway"].stat().st_mode & 0o777 == 0o600
    assert "is no sender" in CliRunner().invoke(main, [*words, "--node", "a b"]).output


@pytest.mark.parametrize("name", ["gateway", "Operator", "billing#2"])
def test_review2_p24_a_node_has_no_name_of_a_service(name: str, tmp_path: Path) -> None:
    """Its file would be `node.gateway.env`, and it could never enrol."""
    for words in (["files", str(tmp_path / "files"), "--secret", __file__], ["prepare"]):
        refused = CliRunner().invoke(main, ["kafka", *words, "--node", name])
        assert refused.exit_code == 2
        assert f"{name} is the name of a service" in refused.output
