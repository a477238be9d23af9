"""`tunery s3`: what it lists, what it prints, and what it refuses."""

import json

import pytest
from click.testing import CliRunner

from schemas.access import OBJECTS
from tunery.cli.main import main

pytestmark = pytest.mark.security


def printed(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["s3", *arguments])
    assert done.exit_code == code, done.output
    return done.output


def test_all_rights_are_listed_by_prefix() -> None:
    rows = json.loads(printed("grants", "--json"))
    assert len(rows) == sum(len(row.reads) + len(row.writes) + len(row.deletes) for row in OBJECTS)
    assert {"service": "trainer", "operation": "write", "prefix": "t/*/checkpoints/"} in rows
    assert "t/*/prepared/" in printed("grants")


def test_a_policy_is_printed_for_the_bucket_of_the_operators_choice() -> None:
    text = printed("policy", "trainer", "--bucket", "team")
    assert "arn:aws:s3:::team/t/*/checkpoints/*" in text
    assert "tunery" not in text
    assert json.loads(printed("policy", "trainer", "--bucket", "team", "--json")) == json.loads(
        text
    )


def test_a_service_that_there_is_not_is_refused() -> None:
    assert "choose billing" in printed("policy", "mailer", code=2)
