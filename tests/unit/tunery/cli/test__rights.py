import json

import click
import pytest

from tunery.cli._rights import print_rights, rename

OWN = {"billing": "tunery_billing", "gateway": "tunery_gateway"}
ROWS = [("billing", "own"), ("gateway", "")]
COLUMNS = {"service": "service", "schema": "owns schema"}


def test_named_principals_get_other_names_and_the_rest_keep_theirs() -> None:
    renamed = rename("--role SERVICE=ROLE", ["gateway=CN=gateway"], OWN)
    assert renamed == {**OWN, "gateway": "CN=gateway"}
    assert OWN["gateway"] == "tunery_gateway"


@pytest.mark.parametrize("pair", ["gateway", "gateway=", "nobody=x", ""])
def test_a_pair_of_another_form_is_refused_with_the_form_and_the_principals(pair: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        rename("--role SERVICE=ROLE", [pair], OWN)
    assert str(refused.value) == f"--role {pair}: use SERVICE=ROLE, with one of billing, gateway"


def test_rights_are_a_table_with_titles_or_json_with_keys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_rights(COLUMNS, ROWS, as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert printed == [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]
    print_rights(COLUMNS, ROWS, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["service", "owns", "schema"],
        [*ROWS[0]],
        ["gateway"],
    ]
