"""Screens of 80 and 120 columns, as a person sees them; and pipes, which get all of each value.

`WRITE_SCREENS=1 pytest tests/unit/tunery/cli/test__tables.py` writes the screens anew.
"""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tunery.cli.screen_answers import (
    ANSWERS,
    COMPARED_IDS,
    FAILED_ID,
    FILE,
    HOOK_ID,
    JOB_IDS,
    MODEL,
    SWEEP,
    TIME,
)
from tests.unit.tunery.cli.scripted_api import ScriptedApi
from tunery.cli import _api
from tunery.cli._tables import field_lines, table_lines

ROOT: Final = Path(__file__).parents[4]
SCREENS: Final = Path(__file__).parent / "screens"
WIDTHS: Final = (80, 120)
IDENTIFIER: Final = re.compile(r"(?:ftjob|file|ftckpt)-[0-9a-f]{24}|ft:\\S+|[0-9a-f]{64}")
COMMANDS: Final[dict[str, tuple[str, ...]]] = {
    "invoice list": ("invoice", "list"),
    "invoice show": ("invoice", "show", "acme", "--period", "2026-11"),
    "invoice sums": ("invoice", "sums", "--period", "2026-11", "--by", "key,metadata[team]"),
    "key list": ("key", "list"),
    "queue": ("queue",),
    "node list": ("node", "list"),
    "base list": ("base", "list"),
    "budget list": ("budget", "list"),
    "job metrics": ("job", "metrics", JOB_IDS[0]),
    "prices list": ("prices", "list"),
    "tenant list": ("tenant", "list"),
    "usage": ("usage", "--period", "2026-11", "--by", "model"),
    "webhook list": ("webhook", "list"),
    "webhook deliveries": ("webhook", "deliveries", HOOK_ID),
    "data diff": ("data", "diff", "faq@1", "faq@2"),
    "sweep list": ("sweep", "list"),
    "sweep show": ("sweep", "show", SWEEP["id"]),
    "job compare": ("job", "compare", *COMPARED_IDS),
    "job show failed": ("job", "show", FAILED_ID),
    "job estimate": ("job", "estimate", "--model", "smollm2-135m-instruct", "--file", FILE["id"]),
    "data check": ("data", "check", "examples/broken.jsonl"),
    "job list": ("job", "list"),
    "job show ended": ("job", "show", JOB_IDS[0]),
    "job show queued": ("job", "show", JOB_IDS[1]),
    "job plan": ("job", "plan", "--model", "smollm2-135m-instruct", "--file", FILE["id"]),
    "file list": ("file", "list"),
    "file show": ("file", "show", FILE["id"]),
    "model list": ("model", "list"),
    "model show": ("model", "show", MODEL),
}


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A terminal in UTC, on the day of the screens, whose width COLUMNS says."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(_api, "interactive", lambda: True)
    monkeypatch.setattr("tunery.cli._job_view.time.time", lambda: float(TIME))
    yield
    monkeypatch.undo()
    time.tzset()


def screen(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], width: int) -> str:
    monkeypatch.chdir(ROOT)
    done = ScriptedApi(monkeypatch, ANSWERS).run(*words, columns=width)
    differs = words[:2] in {("data", "check"), ("data", "diff")}
    assert done.exit_code == differs, (done.output, done.exception)
    return done.output


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", COMMANDS)
def test_first_hour_10_a_screen_is_as_it_was_looked_at(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Identifiers were folded at 80 columns: `ftjob-bea672/70c641a5a668/e3a8bd`."""
    shown = screen(monkeypatch, COMMANDS[name], width)
    expected = SCREENS / f"{name.replace(' ', '_')}_{width}.txt"
    if os.environ.get("WRITE_SCREENS"):
        expected.write_text(shown)
    assert shown == expected.read_text()


@pytest.mark.parametrize("width", [40, *WIDTHS])
@pytest.mark.parametrize("name", COMMANDS)
def test_first_hour_10_identifiers_are_whole_at_any_width(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = set(IDENTIFIER.findall(screen(monkeypatch, COMMANDS[name], width)))
    assert narrow == set(IDENTIFIER.findall(screen(monkeypatch, COMMANDS[name], 1_000)))


@pytest.mark.parametrize("name", COMMANDS)
def test_first_hour_20_a_pipe_gets_all_of_each_value(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`model show` cut every SHA-256 with "…", in pipes too."""
    wide = screen(monkeypatch, COMMANDS[name], 1_000)
    monkeypatch.setattr(_api, "interactive", lambda: False)
    assert screen(monkeypatch, COMMANDS[name], 40) == wide
    assert "…" not in wide or name == "data check"  # which shows a part of a faulty row


def test_first_hour_20_a_model_is_shown_without_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    """`model show` printed the job and the verdict twice, and "quarantined False"."""
    lines = screen(monkeypatch, COMMANDS["model show"], 120).splitlines()
    names = [line.split("  ")[0] for line in lines]
    assert len(names) == len(set(names))
    assert not [line for line in lines if "False" in line]


def test_times_have_their_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Low: tables had local times without a zone."""
    assert _api.moment(0) == "1970-01-01 00:00:00 UTC"
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    assert _api.moment(0).endswith(" EST")
    assert _api.hour(0) == "1970-01-01 00:00 UTC"


@pytest.mark.parametrize("colour", [{}, {"NO_COLOR": "1"}])
def test_no_color_means_no_escape_sequences(
    colour: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm-256color", **colour}.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b" in screen(monkeypatch, ("job", "list"), 80)) == (not colour)


def test_security_l6_what_a_terminal_acts_on_is_not_sent_to_it() -> None:
    (_, line) = table_lines(("name",), [("a\x1b[2Jb\nc\x9b2J",)], 80)
    assert line.plain == "a [2Jb c 2J"


words = st.text(st.characters(codec="utf-8"), max_size=30)


@given(st.lists(st.tuples(words, words, words), max_size=5), st.integers(1, 100))
def test_any_table_has_all_of_its_words(rows: list[tuple[str, str, str]], width: int) -> None:
    shown = "".join(line.plain for line in table_lines(("a", "b", "c"), rows, width))
    for row in rows:
        for text in row:
            known = "".join(mark if mark.isprintable() else " " for mark in text)
            assert all(word in shown for word in known.split())


@given(st.lists(st.tuples(words, words), max_size=5), st.integers(1, 100) | st.none())
def test_any_field_has_all_of_its_words(pairs: list[tuple[str, str]], width: int | None) -> None:
    shown = "".join(line.plain for line in field_lines(pairs, width))
    for _, value in pairs:
        known = "".join(mark if mark.isprintable() else " " for mark in value)
        assert all(word in shown for word in known.split())
