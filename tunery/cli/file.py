"""`tunery file`: training files."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tunery.cli import _api, _options

if TYPE_CHECKING:
    from tunery.client import Api

POLL_S: Final = 0.5
WAIT_S_MAX: Final = 3_600
FINDINGS_SHOWN_MAX: Final = 50
EPILOG = """\
\b
Examples:
  tunery file upload examples/lighthouse.jsonl
  tunery file upload faq.jsonl --dataset faq    as faq@1, and faq@2 the next time
  tunery file list --dataset faq
  tunery file show file-3f…            the report, row by row
  tunery file download file-3f… steps.csv   a result file, or your own rows
  tunery file list --json | jq -r '.[].id'
  tunery file delete file-3f…
  tunery file quota                         what is in use, and what the plan allows
"""


@click.group("file", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Upload training files, and read the reports of their checks."""


@command.command("upload")
@click.argument("path", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--dataset", metavar="NAME", help="Upload as the next version of this dataset.")
@click.option("--wait/--no-wait", default=True, help="Wait until the file is checked.")
@_api.asking
def upload(api: "Api", path: Path, dataset: str | None, wait: bool, as_json: bool) -> None:
    """Upload PATH and check every row.

    The exit code is 1 when the file is rejected.
    """
    file = upload_file(api, path, quiet=as_json, dataset=dataset)
    if wait:
        file = await_check(api, file["id"])
    has_findings = file["status"] == "error" or (file["validation"] or {}).get("warnings")
    report = api.validation(file["id"]) if has_findings and not as_json else None
    _api.show_one(file, as_json, _pairs(file, listed=report is not None))
    if report is not None:
        _findings(report)
    if file["status"] == "error":
        raise SystemExit(1)


@command.command("list")
@click.option("--dataset", metavar="NAME", help="Only the versions of this dataset.")
@_api.listed(
    {
        "file": "id",
        "name": "filename",
        "dataset": "dataset",
        "size": lambda file: _api.size(file["bytes"]),
        "rows": lambda file: (file["validation"] or {}).get("rows"),
        "status": "status",
        "uploaded": lambda file: _api.moment(file["created_at"]),
    }
)
def list_files(api: "Api", dataset: str | None) -> Any:
    """List your files, newest first."""
    return api.files(dataset)


def _quota_fields(used: Any) -> list[tuple[str, Any]]:
    limits = used["limits"]
    return [
        ("storage", f"{_api.size(used['bytes'])} of {_api.size(limits['bytes'])}"),
        ("files", f"{used['files']:,} of {limits['files']:,}"),
        ("pending uploads", f"{used['uploads']:,} of {limits['uploads']:,}"),
    ]


@command.command("quota")
@click.option("--tenant", help="Another tenant, for operators. [the key's]")
@_api.shown(_quota_fields)
def show_quota(api: "Api", tenant: str | None) -> Any:
    """Show the bytes, files and pending uploads in use, and how many your plan allows."""
    return api.storage(tenant)


@command.command("show")
@click.argument("file_id")
@_api.asking
def show(api: "Api", file_id: str, as_json: bool) -> None:
    """Show a file with the report of its check."""
    file, report = api.file(file_id), api.validation(file_id)
    _api.show_one({**file, "check": report}, as_json, _pairs(file))
    if not as_json:
        _findings(report)


@command.command("download")
@click.argument("file_id")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@_api.asking
def download(api: "Api", file_id: str, path: Path | None, as_json: bool) -> None:
    """Download a file as it was uploaded, or the result file of a job. [its own name, here]

    Nothing is overwritten.
    """
    file = api.file(file_id)
    name = Path(file["filename"] or file["id"]).name
    target = Path(name) if path is None else path / name if path.is_dir() else path
    if target.exists():
        raise click.ClickException(f"{target} exists already; name another path")
    api.download_file(file["id"], target)
    saved = {"id": file["id"], "path": str(target), "bytes": target.stat().st_size}
    _api.show_one(saved, as_json, [("file", saved["path"]), ("size", _api.size(file["bytes"]))])


@command.command("delete")
@click.argument("file_id")
@_api.removed("deleted")
def delete(api: "Api", file_id: str) -> str:
    """Delete a file. Fails while a running job or a model depends on it."""
    api.delete_file(file_id)
    return file_id


def upload_file(api: "Api", path: Path, *, quiet: bool, dataset: str | None = None) -> Any:
    """Upload a file, in parts if it is large, with a progress bar if stderr is a terminal."""
    if quiet or not sys.stderr.isatty():
        return api.upload(path, dataset=dataset)
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = ("[progress.description]{task.description}", BarColumn(), DownloadColumn())
    screen = Console(stderr=True)
    with Progress(*columns, TransferSpeedColumn(), console=screen, transient=True) as bar:
        task = bar.add_task(escape(path.name), total=path.stat().st_size)
        return api.upload(
            path, progress=lambda sent: bar.update(task, completed=sent), dataset=dataset
        )


def await_check(api: "Api", file_id: str) -> Any:
    """Wait until the file is checked, and return it. Raises ClickException after WAIT_S_MAX."""
    for _ in range(int(WAIT_S_MAX / POLL_S)):
        file = api.file(file_id)
        if file["status"] != "uploaded":
            return file
        time.sleep(POLL_S)
    raise click.ClickException(
        f"{file_id} is still being checked after {WAIT_S_MAX} s; see `tunery logs ingest`"
    )


def _pairs(file: Any, *, listed: bool = False) -> list[tuple[str, Any]]:
    """(name, value) of each field of a file. listed: its problems follow in a table."""
    problems = file["status_details"]
    if listed and problems:
        problems = problems.partition("; GET ")[0]
    validation = file["validation"] or {}
    tokens = validation.get("tokens") or {}
    return [
        ("file", file["id"]),
        ("name", file["filename"]),
        ("dataset", file["dataset"]),
        ("sha256", file["sha256"]),
        ("size", _api.size(file["bytes"])),
        ("status", file["status"]),
        ("rows", validation.get("rows")),
        ("dialect", validation.get("dialect")),
        ("tokens", ", ".join(f"{count:,} ({base})" for base, count in tokens.items())),
        ("warnings", validation.get("warnings") or None),
        ("problems", problems),
    ]


def _findings(check: dict[str, Any]) -> None:
    """Print the report of a check as a table."""
    report = check.get("report") or {}
    findings = [*report.get("errors", ()), *report.get("warnings", ())]
    if not findings:
        return
    _api.show(
        findings[:FINDINGS_SHOWN_MAX],
        False,
        {
            "row": lambda finding: finding.get("row") or "file",
            "line": lambda finding: finding.get("line"),
            "code": "code",
            "message": "message",
            "pointer": lambda finding: finding.get("pointer"),
            "fix": lambda finding: finding.get("hint"),
        },
    )
    if len(findings) > FINDINGS_SHOWN_MAX:
        click.echo(f"… and {len(findings) - FINDINGS_SHOWN_MAX} more; --json lists them")
