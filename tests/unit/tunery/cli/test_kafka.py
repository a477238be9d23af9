"""`tunery kafka`: what it lists, and what it refuses before it connects."""

import json
from pathlib import Path

from click.testing import CliRunner

from schemas.topics import ACCOUNT, SERVICES
from tunery.cli.main import main


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
