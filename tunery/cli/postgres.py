"""`tunery postgres`: who may do what in PostgreSQL, and the same for a PostgreSQL of one's own."""

import json

import click

from tunery.cli import _options
from tunery.cli._rights import print_rights, rename

EPILOG = """\
\b
Examples:
  tunery postgres grants
  tunery postgres grants --json
  tunery postgres sql | psql --set ON_ERROR_STOP=1 --single-transaction DSN
  tunery postgres sql --role gateway=team_gateway --role billing=team_billing
  tunery postgres sql --json
"""


@click.group("postgres", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Show who may do what in PostgreSQL, and prepare a PostgreSQL of your own for it.

    The embedded PostgreSQL is prepared by `tunery up`.
    """


@command.command("grants")
@_options.as_json
def grants(as_json: bool) -> None:
    """List the role and the schema of each service; some have none."""
    from schemas.access import ACCESS, keeps_rows
    from tunery.runtime.store.roles import role_of

    rows = [
        (service, role_of(service), service) if keeps_rows(service) else (service, "", "")
        for service in sorted(ACCESS)
    ]
    columns = {"service": "service", "role": "role", "schema": "owns schema"}
    print_rights(columns, rows, as_json)


@command.command("sql")
@click.option(
    "--role",
    "renamed",
    multiple=True,
    metavar="SERVICE=ROLE",
    help="The role of a service, where it is not `tunery_` and its name.",
)
@_options.as_json
def sql(renamed: tuple[str, ...], as_json: bool) -> None:
    """Print statements that make a role for each service, the owner of its schema alone.

    Whoever owns the database runs them, before the first start and after an update. Tables of one
    role for all get their new owners. Passwords are yours to set.
    """
    from schemas.access import KEEPS_ROWS
    from tunery.runtime.store.roles import role_of, role_statements

    own = {service: role_of(service) for service in KEEPS_ROWS}
    roles = rename("--role SERVICE=ROLE", renamed, own)
    try:
        statements = list(role_statements(roles, {}))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps({"roles": roles, "statements": statements}))
    else:
        click.echo("\n".join(f"{statement};" for statement in statements))
