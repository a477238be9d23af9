"""What the commands about rights share: principals by other names, and their tables."""

import json
from collections.abc import Iterable, Sequence

import click


def rename(option: str, pairs: Iterable[str], names: dict[str, str]) -> dict[str, str]:
    """Names of principals, with those that an option such as "--role SERVICE=ROLE" gives them.

    Raises UsageError for a pair of another form, or a principal that is not in `names`.
    """
    flag, form = option.split()
    renamed = dict(names)
    for pair in pairs:
        principal, _, name = pair.partition("=")
        if principal not in names or not name:
            raise click.UsageError(f"{flag} {pair}: use {form}, with one of {', '.join(names)}")
        renamed[principal] = name
    return renamed


def print_rights(columns: dict[str, str], rows: Iterable[Sequence[str]], as_json: bool) -> None:
    """Print a table as wide as it needs, or its rows as JSON. columns: titles, by their keys."""
    from rich.console import Console

    from tunery.cli._tables import table_lines

    if as_json:
        click.echo(json.dumps([dict(zip(columns, row, strict=True)) for row in rows]))
        return
    for line in table_lines([*columns.values()], rows, None):
        Console().print(line, soft_wrap=True)
