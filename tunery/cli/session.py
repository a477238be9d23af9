"""`tunery session`: sessions, which train with a loop at the client (the Tinker SDK)."""

import uuid
from typing import TYPE_CHECKING, Any, Final

import click

from tunery.cli import _api, _options
from tunery.cli.job import show_wait

if TYPE_CHECKING:
    from tunery.client import Api

EPILOG: Final = """\
\b
Examples:
  tunery session list
  tunery session show session-91…
  tunery session why session-91…       what it waits for
  tunery session log session-91…       its commands, the newest first
  tunery session raise session-91… --minutes 240
  tunery session publish session-91… best --suffix mine
  tunery session end session-91…       what was asked before is done, then it is billed
"""


@click.group("session", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Look at sessions, which train with a loop of your own, and end them."""


def _fields(session: Any) -> list[tuple[str, Any]]:
    return [
        ("session", session["id"]),
        ("status", session["status"]),
        ("model", session["model"]),
        ("rank", session["rank"]),
        ("began", _api.moment(session["created_at"])),
        ("last sign", _api.moment(session["last_seen_at"])),
        ("ended", _api.moment(session["closed_at"])),
        ("ended by", session["ends"]),
        ("erased", _api.moment(session["erased_at"])),
        ("kept for days", session["kept_days"]),
        ("tokens at most", f"{session['max_tokens']:,}"),
        ("minutes at most", session["max_minutes"]),
    ]


_api.add_list(
    command,
    "List your sessions, newest first.",
    lambda api: api.get("sessions")["data"],
    {
        "session": "id",
        "status": "status",
        "model": "model",
        "rank": "rank",
        "began": lambda session: _api.moment(session["created_at"]),
        "last sign": lambda session: _api.moment(session["last_seen_at"]),
        "ended": lambda session: _api.moment(session["closed_at"]),
    },
)


@command.command("show")
@click.argument("session_id")
@_api.shown(_fields)
def show(api: "Api", session_id: str) -> Any:
    """Show a session. `tunery job show` has its cost and attempts: it is a job as well."""
    return api.get("sessions", session_id)


@command.command("log")
@click.argument("session_id")
@_api.listed(
    {
        "command": "id",
        "kind": "kind",
        "tokens": "tokens",
        "asked": lambda row: _api.moment(row["created_at"]),
        "answered": lambda row: _api.moment(row["answered_at"]),
        "failed": lambda row: "yes" if row["failed"] else "",
    }
)
def log(api: "Api", session_id: str) -> Any:
    """List the newest commands of a session, up to a hundred."""
    return api.get("sessions", session_id, "commands")["data"]


@command.command("raise")
@click.argument("session_id")
@click.option("--tokens", type=int, help="Tokens that its requests may have in all.")
@click.option("--minutes", type=int, help="How long it may have its slots in all.")
@_api.shown(_fields)
def raise_limits(api: "Api", session_id: str, tokens: int | None, minutes: int | None) -> Any:
    """Let a session use more; what waits at its cap goes on."""
    from tunery.client.wire import path_of

    body = {"max_tokens": tokens, "max_minutes": minutes}
    return api.send(path_of(("sessions", session_id, "raise")), body, str(uuid.uuid4()))


@command.command("publish")
@click.argument("session_id")
@click.argument("name")
@click.option("--suffix", help="What its name ends with.")
@click.option("--validation-file", help="Rows of your own, on which the gate judges it.")
@_api.shown(lambda job: [("job", job["id"]), ("status", job["status"])])
def publish(
    api: "Api", session_id: str, name: str, suffix: str | None, validation_file: str | None
) -> Any:
    """Make a version of weights that were saved for a sampler under NAME; the gate judges it."""
    from tunery.client.wire import path_of

    body = {"name": name, "suffix": suffix, "validation_file": validation_file}
    return api.send(path_of(("sessions", session_id, "versions")), body, str(uuid.uuid4()))


@command.command("end")
@click.argument("session_id")
@_api.shown(_fields)
def end(api: "Api", session_id: str) -> Any:
    """End a session: what was asked before is done, its weights are saved, and it is billed."""
    from tunery.client.wire import path_of

    return api.send(path_of(("sessions", session_id, "end")), {}, str(uuid.uuid4()))


@command.command("why")
@click.argument("session_id")
@_api.asking
def why(api: "Api", session_id: str, as_json: bool) -> None:
    """Show why a session waits for its slot, and when it is expected to begin."""
    show_wait(api, session_id, as_json)
