"""`tunery postgres`: what it lists, what it prints, and what it refuses."""

import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from schemas.access import ACCESS, KEEPS_ROWS, READER, schema_of
from tunery.cli.main import main
from tunery.local import ports, secrets
from tunery.local.paths import DataDir


def printed(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["postgres", *arguments])
    assert done.exit_code == code, done.output
    return done.output


def test_each_service_has_its_role_and_schema_or_none() -> None:
    rows = json.loads(printed("grants", "--json"))
    assert {row["service"] for row in rows} == {*ACCESS, READER}
    assert {row["schema"] for row in rows if row["role"]} == {*map(schema_of, KEEPS_ROWS), ""}
    reads = {row["service"]: row["reads"] for row in rows if row["reads"]}
    assert reads == {READER: "billing_reports, gateway_reports"}
    assert {row["service"]: row["role"] for row in rows}["exporter"] == ""
    assert "tunery_notifier" in printed("grants")


def test_statements_are_printed_for_psql_with_names_of_the_operators_choice() -> None:
    text = printed("sql", "--role", "gateway=team_gateway")
    assert f'ALTER SCHEMA "{schema_of("gateway")}" OWNER TO "team_gateway";' in text
    assert "tunery_gateway" not in text
    assert "PASSWORD" not in text
    parsed = json.loads(printed("sql", "--role", "gateway=team_gateway", "--json"))
    assert "".join(f"{statement};\n" for statement in parsed["statements"]) == text
    assert parsed["roles"]["gateway"] == "team_gateway"


def test_wrong_names_are_refused() -> None:
    assert "with one of billing" in printed("sql", "--role", "mailer=x", code=2)
    assert "is not a name" in printed("sql", "--role", "gateway='; DROP", code=2)


def test_readers_get_an_address_of_a_stack_that_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TUNERY_POSTGRES_DSN", raising=False)
    assert "there is no stack" in printed("reader", "--data-dir", str(tmp_path), code=1)
    folders = DataDir(tmp_path)
    password = secrets.load_or_create(folders.secrets).postgres_password
    ports.assign(folders.ports, lambda _: None, ports.ANY)
    address = printed("reader", "--data-dir", str(tmp_path)).strip()
    assert address.startswith("postgresql://tunery_reports:")
    assert password not in address
    monkeypatch.setenv("TUNERY_POSTGRES_DSN", "postgresql://owner@db.example.com/tunery")
    assert "of your own" in printed("reader", "--data-dir", str(tmp_path), code=1)


def test_review2_p15_roles_are_prepared_in_a_database_that_is_named_and_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TUNERY_POSTGRES_DSN", raising=False)
    assert "TUNERY_POSTGRES_DSN is not set" in printed("prepare", code=1)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        port = closed.getsockname()[1]
        monkeypatch.setenv("TUNERY_POSTGRES_DSN", f"postgresql://owner@127.0.0.1:{port}/tunery")
        assert "PostgreSQL was not prepared" in printed("prepare", code=1)
    assert "with one of billing" in printed("prepare", "--role", "mailer=x", code=2)
