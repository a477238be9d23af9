"""`tunery postgres`: what it lists, what it prints, and what it refuses."""

import json

from click.testing import CliRunner

from schemas.access import ACCESS, KEEPS_ROWS
from tunery.cli.main import main


def printed(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["postgres", *arguments])
    assert done.exit_code == code, done.output
    return done.output


def test_each_service_has_its_role_and_schema_or_none() -> None:
    rows = json.loads(printed("grants", "--json"))
    assert {row["service"] for row in rows} == set(ACCESS)
    assert {row["schema"] for row in rows if row["role"]} == set(KEEPS_ROWS)
    assert {row["service"]: row["role"] for row in rows}["exporter"] == ""
    assert "tunery_notifier" in printed("grants")


def test_statements_are_printed_for_psql_with_names_of_the_operators_choice() -> None:
    text = printed("sql", "--role", "gateway=team_gateway")
    assert 'ALTER SCHEMA "gateway" OWNER TO "team_gateway";' in text
    assert "tunery_gateway" not in text
    assert "PASSWORD" not in text
    parsed = json.loads(printed("sql", "--role", "gateway=team_gateway", "--json"))
    assert "".join(f"{statement};\n" for statement in parsed["statements"]) == text
    assert parsed["roles"]["gateway"] == "team_gateway"


def test_wrong_names_are_refused() -> None:
    assert "with one of billing" in printed("sql", "--role", "mailer=x", code=2)
    assert "is not a name" in printed("sql", "--role", "gateway='; DROP", code=2)
