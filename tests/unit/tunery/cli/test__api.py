"""Commands that talk to the API: their tables, and what they say when it refuses or is away."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Final

import click
import pytest
from click.testing import CliRunner, Result

from tests.unit.tunery.cli.test_main import ALL
from tunery.cli._api import show, show_one
from tunery.cli.main import main

NAME = "rows [/red] [bold].jsonl"


def test_names_with_brackets_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    show([{"id": NAME}], False, {"name": "id"})
    show_one({}, False, [("file", NAME), ("none", None)])
    listed, shown = [line for line in capsys.readouterr().out.splitlines() if "jsonl" in line]
    assert listed.strip() == NAME
    assert shown.split() == ["file", *NAME.split()]


# --- every command that talks to the API says what is wrong and what to do ------------------------


NOUNS: Final = {"base", "budget", "file", "job", "key", "model", "tenant", "webhook"}
LOCAL: Final = ("export", "import", "register", "serve", "verify", "where")
CALLS: Final = [
    words
    for words, command in ALL.items()
    if words[0] in NOUNS
    and words not in {("model", name) for name in LOCAL}  # read a local folder, or ask an engine
    and not isinstance(command, click.Group)
]
CHOSEN: Final[dict[tuple[str, ...], list[str]]] = {  # options without which there is nothing to do
    ("base", "add"): ["--unchecked"],
    ("budget", "set"): ["--amount", "1"],
    ("job", "compare"): ["job_1", "job_2"],
    ("job", "mirror"): ["--mlflow", "http://127.0.0.1:9"],
    **{
        ("job", verb): ["--model", "x", "--file", "file-x"]
        for verb in ("estimate", "plan", "submit")
    },
    ("tenant", "erase"): ["--yes"],
    ("tenant", "plan"): ["--plan", "free"],
    ("tenant", "prepaid"): ["--amount", "1"],
    ("webhook", "change"): ["--name", "n"],
    ("webhook", "redeliver"): ["del_1"],
}
REFUSAL: Final = {"message": "The API key is not valid.", "type": "authentication_error"}
KEY_REFUSED: Final = (
    401,
    json.dumps({"error": {**REFUSAL, "param": None, "code": "invalid_api_key"}}).encode(),
)
ANOTHER_SERVER: Final = (200, b"<html>It works!</html>")


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunery.client.asynchronous.PAUSE_S", 0)


@dataclass
class Answering:
    """A server that answers everything with `answer`: status and body."""

    url: str
    answer: tuple[int, bytes]


@pytest.fixture
def server() -> Iterator[Answering]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            status, body = answering.answer
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815  # names of http.server

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        answering = Answering(f"http://127.0.0.1:{http.server_port}/v1", KEY_REFUSED)
        thread = Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield answering
        http.shutdown()
        thread.join()


def called(words: tuple[str, ...], url: str, folder: Path) -> Result:
    """Run a command with its required arguments against the API at `url`."""
    rows = folder / "rows.jsonl"
    rows.write_text("{}\n")
    arguments: list[str] = []
    for parameter in ALL[words].params:
        is_path = isinstance(parameter.type, click.Path | click.File)
        value = str(folder if is_path and not getattr(parameter.type, "file_okay", True) else rows)
        if isinstance(parameter, click.Argument) and parameter.required:
            # `base add` takes a folder, or a name that it would look for at a hub
            is_folder = parameter.name == "path" and not is_path
            arguments.append(value if is_path else str(folder) if is_folder else _choice(parameter))
        elif isinstance(parameter, click.Option) and parameter.required:
            arguments += [parameter.opts[0], "x"]
    environ = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "wrong"}
    return CliRunner().invoke(main, [*words, *arguments, *CHOSEN.get(words, ())], env=environ)


def _choice(argument: click.Parameter) -> str:
    if argument.name == "path":
        return "."  # or a name, which would be looked up at a hub
    return argument.type.choices[0] if isinstance(argument.type, click.Choice) else "x"


def failure_of(done: Result) -> str:
    """The output of a command that failed with a fix and without a traceback."""
    assert done.exit_code == 1, done.output
    assert isinstance(done.exception, SystemExit), done.exception
    assert "fix: " in done.output
    return done.output


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_an_unreachable_server_is_reported(words: tuple[str, ...], tmp_path: Path) -> None:
    output = failure_of(called(words, "http://127.0.0.1:9/v1", tmp_path))
    assert "127.0.0.1:9/v1 does not answer" in output


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_a_wrong_key_is_reported(words: tuple[str, ...], tmp_path: Path, server: Answering) -> None:
    server.answer = KEY_REFUSED
    output = failure_of(called(words, server.url, tmp_path))
    assert "The API key is not valid" in output


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_an_address_that_is_not_the_api_is_reported(
    words: tuple[str, ...], tmp_path: Path, server: Answering
) -> None:
    server.answer = ANOTHER_SERVER
    output = failure_of(called(words, server.url, tmp_path))
    assert "It works!" in output
