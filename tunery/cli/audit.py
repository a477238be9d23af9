"""`tunery audit`: who did what over HTTP; export and verification of what the log holds."""

import asyncio
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from schemas.audit import AuditKind
from tunery.cli import _api, _options
from tunery.local.paths import DataDir

if TYPE_CHECKING:
    from tunery.client import Api
    from tunery.platform.tools.audit_chain import AuditTally

LINES: Final = 100
FOLLOW_S: Final = 2.0
EPILOG = """\
\b
Examples:
  tunery audit list                            what was done last, of all tenants (admin key)
  tunery audit list --tenant acme --kind refusal
  tunery audit list --object file-8c… --json   who read this file, one entry a line
  tunery audit list --follow
  tunery audit export audit.jsonl              the records of the log, as they are
  tunery audit verify                          that no record was changed, removed or added
  tunery audit verify audit.jsonl              an export, without any server
  tunery audit verify --against audit.jsonl    also: the log still begins with this export
\b
`list` asks the API. `export` and `verify` read the log of the running stack, or of
$TUNERY_KAFKA_BOOTSTRAP, as an operator.
"""


@click.group("audit", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Show who did what, from where and with which result.

    Noted are uses of an operator's right, readings of tenants' content, changes, refusals (401,
    403), and the use of keys.
    """


@command.command("list")
@click.option("--tenant", help="Only entries about this tenant. [all, with an admin key]")
@click.option("--key", "key_id", help="Only entries of this key id.")
@click.option("--object", "object_id", help="Only entries about this id.")
@click.option("--kind", type=click.Choice(get_args(AuditKind)), help="Only entries of this kind.")
@click.option(
    "--lines", "-n", type=click.IntRange(1), default=LINES, show_default=True, help="Entries."
)
@click.option("--follow", "-f", is_flag=True, help="Print new entries as they come.")
@_api.asking
def list_entries(
    api: "Api",
    tenant: str | None,
    key_id: str | None,
    object_id: str | None,
    kind: str | None,
    lines: int,
    follow: bool,
    as_json: bool,
) -> None:
    """List entries, oldest of the newest first. JSON: one object per line."""
    asked = {"tenant": tenant, "key_id": key_id, "object_id": object_id, "kind": kind}
    query = {name: value for name, value in asked.items() if value is not None}
    entries = list(api.audit(query, lines))[::-1]
    _print(entries, as_json, is_first=True)
    while follow:
        try:
            time.sleep(FOLLOW_S)
        except KeyboardInterrupt:
            return
        newest = {"after": entries[-1]["id"]} if entries else {}
        more = list(api.audit({**query, **newest, "order": "asc"}))
        _print(more, as_json, is_first=False)
        entries = more or entries


def _print(entries: list[dict[str, Any]], as_json: bool, *, is_first: bool) -> None:
    if as_json:
        for entry in entries:
            click.echo(json.dumps(entry))
    elif entries or is_first:
        columns = ("time", "kind", "tenant", "key", "address", "request", "objects", "result", "×")
        _api.show_rows(entries, False, columns, _cells)


def _cells(entry: dict[str, Any]) -> tuple[object, ...]:
    request = " ".join(filter(None, (entry["method"], entry["route"])))
    result = " ".join(str(part) for part in (entry["status"], entry["code"]) if part)
    who = entry["key_id"] or ("operator" if entry["kind"] == "operator" else "")
    return (
        _api.moment(entry["created_at"]),
        entry["kind"],
        entry["tenant"] or "",
        who,
        entry["address"] or "",
        request,
        ", ".join(entry["object_ids"]),
        result,
        entry["times"],
    )


@command.command("export")
@click.argument("file", type=click.Path(dir_okay=False, writable=True, allow_dash=True))
@_options.data_dir
@_options.as_json
def export(file: str, folders: DataDir, as_json: bool) -> None:
    """Write all records of the log to FILE (JSON lines; `-`: standard output), and verify them.

    Keep it elsewhere: `verify --against` shows whether the log still holds what it held.
    """
    from schemas.topics import AUDIT, AUDIT_PARTITION
    from tunery.cli.journal.connection import open_log
    from tunery.platform.tools.audit_chain import AuditChain
    from tunery.runtime.bus.reading import records_now

    async def write() -> "AuditTally":
        chain = AuditChain()
        async with open_log(folders) as log:
            with click.open_file(file, "wb", atomic=True) as target:
                async for record in records_now(log, AUDIT.name, AUDIT_PARTITION):
                    chain.take(record.value)
                    target.write(record.value + b"\n")
        return chain.tally

    _report(_verified(write), as_json, err=file == "-")


@command.command("verify")
@click.argument(
    "file", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
@click.option(
    "--against",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="An earlier export, with which the records must begin.",
)
@_options.data_dir
@_options.as_json
def verify(file: Path | None, against: Path | None, folders: DataDir, as_json: bool) -> None:
    """Verify the hash chain of the log, or of an export in FILE. Exit code 1 when it is broken.

    A chain cannot show that its last records were removed, nor that all of it was made anew: an
    export that is kept elsewhere can (--against).
    """
    from schemas.topics import AUDIT, AUDIT_PARTITION
    from tunery.cli.journal.connection import open_log
    from tunery.platform.tools.audit_chain import AuditChain, BrokenAuditChain
    from tunery.runtime.bus.reading import records_now

    earlier = iter(()) if against is None else iter(against.read_bytes().splitlines())

    def take(chain: AuditChain, value: bytes) -> None:
        chain.take(value)
        if next(earlier, value) != value:
            number = chain.tally.records - 1
            raise BrokenAuditChain(f"record {number} is not the one of {against}")

    async def walk() -> "AuditTally":
        chain = AuditChain()
        if file is None:
            async with open_log(folders) as log:
                async for record in records_now(log, AUDIT.name, AUDIT_PARTITION):
                    take(chain, record.value)
        else:
            for line in file.read_bytes().splitlines():
                take(chain, line)
        if next(earlier, None) is not None:
            raise BrokenAuditChain(f"the records end before those of {against}")
        return chain.tally

    _report(_verified(walk), as_json)


def _verified(work: Any) -> "AuditTally":
    """Exit with code 1 and the reason when a chain is broken."""
    from tunery.platform.tools.audit_chain import BrokenAuditChain

    try:
        tally: AuditTally = asyncio.run(work())
    except BrokenAuditChain as broken:
        raise click.ClickException(f"The audit log is broken: {broken}.") from None
    return tally


def _report(tally: "AuditTally", as_json: bool, *, err: bool = False) -> None:
    if as_json:
        click.echo(json.dumps(asdict(tally)), err=err)
        return
    lost = f"; {tally.lost} entries were lost by their writers" if tally.lost else ""
    click.echo(
        f"{tally.entries} entries in {tally.records} records of {tally.writers} gateway processes "
        f"follow each other{lost}; head {tally.head}",
        err=err,
    )
