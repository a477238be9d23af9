"""`tunery postgres`: who may do what in PostgreSQL, and the same for a PostgreSQL of one's own."""

import asyncio
import json
import os

import click

from tunery.cli import _options
from tunery.cli._rights import print_rights, rename
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir

EPILOG = """\
\b
Examples:
  tunery postgres grants
  tunery postgres grants --json
  tunery postgres sql | psql --set ON_ERROR_STOP=1 --single-transaction DSN
  tunery postgres sql --role gateway=team_gateway --role billing=team_billing
  tunery postgres sql --json
  tunery postgres prepare
  tunery postgres reader
"""


ROLE = click.option(
    "--role",
    "renamed",
    multiple=True,
    metavar="SERVICE=ROLE",
    help="The role of a service, where it is not `tunery_` and its name.",
)


@click.group("postgres", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Show who may do what in PostgreSQL, and prepare a PostgreSQL of your own for it.

    The embedded PostgreSQL is prepared by `tunery up`.
    """


@command.command("grants")
@_options.as_json
def grants(as_json: bool) -> None:
    """List the role and the schema of each service, some have none, and what readers may read."""
    from schemas.access import ACCESS, READER, REPORTS, keeps_rows, schema_of
    from tunery.platform.store.reports import reports_of
    from tunery.platform.store.roles import role_of

    rows = [
        (service, role_of(service), schema_of(service), "")
        if keeps_rows(service)
        else (service, "", "", "")
        for service in sorted(ACCESS)
    ]
    rows.append((READER, role_of(READER), "", ", ".join(map(reports_of, REPORTS))))
    columns = {"service": "service", "role": "role", "schema": "owns schema", "reads": "reads"}
    print_rights(columns, rows, as_json)


@command.command("sql")
@ROLE
@_options.as_json
def sql(renamed: tuple[str, ...], as_json: bool) -> None:
    """Print statements that make a role for each service, the owner of its schema alone.

    The owner of the database runs them, before the first start and after an update. Tables of one
    role for all get their new owners. Passwords are yours to set.
    """
    roles, statements = _statements(renamed)
    if as_json:
        click.echo(json.dumps({"roles": roles, "statements": statements}))
    else:
        click.echo("\n".join(f"{statement};" for statement in statements))


@command.command("prepare")
@ROLE
@_options.as_json
def prepare(renamed: tuple[str, ...], as_json: bool) -> None:
    """Run what `tunery postgres sql` prints, in the database that TUNERY_POSTGRES_DSN names.

    That logs in as the owner of the database, before the first start and after an update.
    Passwords are yours to set.
    """
    import asyncpg

    from tunery.platform.store.preparation import prepare_roles

    address = os.environ.get("TUNERY_POSTGRES_DSN")
    if not address:
        raise LocalError(
            "TUNERY_POSTGRES_DSN is not set", "set it to the database, with its owner's account"
        )
    roles, _ = _statements(renamed)
    try:
        asyncio.run(prepare_roles(address, roles, {}))
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError) as error:
        raise LocalError(
            f"PostgreSQL was not prepared: {error or type(error).__name__}",
            "log in as the owner of the database: see docs/how-to/secure-postgresql.md",
        ) from error
    if as_json:
        click.echo(json.dumps({"roles": roles}))
    else:
        click.echo(f"{len(roles)} roles have their schemas and rights")


@command.command("reader")
@_options.data_dir
@_options.as_json
def reader(folders: DataDir, as_json: bool) -> None:
    """Print the address of the stack's PostgreSQL for readers, with their password.

    They read views of use and money, and nothing else.
    """
    from schemas.access import READER
    from tunery.local.postgres import dsn
    from tunery.local.settings import of_stack
    from tunery.platform.store.roles import role_of

    settings = of_stack(folders, os.environ)
    if settings.postgres_port is None:
        raise LocalError(
            "TUNERY_POSTGRES_DSN names a PostgreSQL of your own",
            f"log in as {role_of(READER)}, with the password that you gave it",
        )
    address = dsn(settings.postgres_port, settings.keys, READER)
    click.echo(json.dumps({"dsn": address}) if as_json else address)


def _statements(renamed: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """Roles by service, and what makes them. Raises UsageError for a wrong name."""
    from tunery.platform.store.roles import default_roles, role_statements

    roles = rename("--role SERVICE=ROLE", renamed, default_roles())
    try:
        return roles, list(role_statements(roles, {}))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
