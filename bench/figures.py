"""Writes `docs/figures.md` from the recorded results of the benches.

    python -m bench.figures run
    python -m bench.core --json | python -m bench.figures record core
    python -m bench.figures page > docs/figures.md

`run` runs every bench of the page, one after the other, and writes the page: `make figures`. It
takes a quarter of an hour, and exits with 1 and a line for each goal that was missed. `run core
gateway` runs these alone. `record NAME` reads the output of
a bench and keeps its last line, with today's date and this machine, in `bench/results/NAME.json`.
`page` prints the page; it measures nothing.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bench.figure_tables import BENCHES, Bench, Figure
from tunery.cli.demo.recording import machine

RESULTS: Final = Path(__file__).with_name("results")
PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "figures.md"
HEAD: Final = """\
# Figures

<!-- Made by `python -m bench.figures page` from `bench/results/`. Do not edit. -->

One table for each benchmark: everything in a table comes from one run of its command. The machines
were shared with other work, so compare ratios rather than milliseconds. A *bare* figure is the same
work done by the plain client library in the same run.
"""


def record(name: str, lines: Sequence[str], folder: Path = RESULTS, command: str = "") -> Path:
    """Keep the last line of a bench's output. Raises ValueError when it is no JSON object.

    command: command that printed it; empty: the bench's usual one.
    """
    figures = json.loads(lines[-1])
    if not isinstance(figures, dict):
        raise ValueError(f"the last line of {name} is no JSON object")
    result = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": machine(),
        "command": command or next(bench.command for bench in BENCHES if bench.name == name),
        "figures": figures.get("figures", figures),
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return path


def run(benches: Sequence[Bench], folder: Path = RESULTS) -> None:
    """Run benches one after the other and record them, so that all are of one run.

    Nothing is recorded unless all have printed their figures. Raises SystemExit that names the
    bench which has not; a goal that was missed is recorded like any other figure.
    """
    outputs: list[tuple[Bench, list[str]]] = []
    for bench in benches:
        sys.stderr.write(f"{bench.command} …")
        sys.stderr.flush()
        began = time.monotonic()
        program, *arguments = shlex.split(bench.command)
        assert program == "python", bench.command
        done = subprocess.run(
            [sys.executable, *arguments], stdout=subprocess.PIPE, text=True, check=False
        )
        sys.stderr.write(f" {time.monotonic() - began:.0f} s, exit code {done.returncode}\n")
        lines = done.stdout.splitlines()
        if not lines or not lines[-1].startswith("{"):
            raise SystemExit(f"{bench.command} printed no figures; nothing is recorded")
        outputs.append((bench, lines))
    for bench, lines in outputs:
        record(bench.name, lines, folder, bench.command)


def missed(benches: Sequence[Bench], folder: Path = RESULTS) -> list[str]:
    """Return a line for each recorded figure that misses its goal."""
    lines = []
    for bench in benches:
        if not (path := folder / f"{bench.name}.json").is_file():
            continue
        figures = json.loads(path.read_text(encoding="utf-8"))["figures"]
        for figure in bench.figures:
            value = _value(figures, figure.key)
            if value is not None and not figure.is_met(value):
                shown = figure.form.format(value)
                lines.append(f"{bench.name}: {figure.text}: {shown}, goal {figure.goal}")
    return lines


def page(folder: Path = RESULTS) -> str:
    """The page of all results in the folder, in the order of BENCHES."""
    tables = [
        _table(bench, json.loads(path.read_text(encoding="utf-8")))
        for bench in BENCHES
        if (path := folder / f"{bench.name}.json").is_file()
    ]
    return "\n".join([HEAD, *tables])


def _table(bench: Bench, result: dict[str, Any]) -> str:
    figures = result["figures"]
    rows = [
        _row(figure, value)
        for figure in bench.figures
        if (value := _value(figures, figure.key)) is not None
    ]
    command = result["command"]
    head = f"## {bench.title}\n\n`{command}` on {result['date']}, {result['machine']}.\n"
    return "\n".join([head, "| figure | value | goal |", "|---|---|---|", *rows, ""])


def _row(figure: Figure, value: float | str) -> str:
    shown = figure.form.format(value)
    shown = shown if figure.is_met(value) else f"**{shown}** (missed)"
    return f"| {figure.text} | {shown} | {figure.goal} |"


def _value(figures: dict[str, Any], key: str) -> float | int | str | None:
    value: Any = figures
    for part in key.split("/"):
        value = value.get(part) if isinstance(value, dict) else None
    return "yes" if value is True else "no" if value is False else value


def main() -> None:
    """Record a result, or print the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("page", help="print the page")
    recording = actions.add_parser("record", help="keep the output of a bench (on standard input)")
    recording.add_argument("name", choices=[bench.name for bench in BENCHES])
    running = actions.add_parser("run", help="run the benches, record them and write the page")
    running.add_argument("names", nargs="*", help="of benches; without any: all of them")
    arguments = parser.parse_args()
    if arguments.action == "page":
        sys.stdout.write(page())
    elif arguments.action == "run":
        if unknown := set(arguments.names) - {bench.name for bench in BENCHES}:
            parser.error(f"no such bench: {', '.join(sorted(unknown))}")
        names = arguments.names or [bench.name for bench in BENCHES]
        chosen = [bench for bench in BENCHES if bench.name in names]
        run(chosen)
        PAGE.write_text(page(), encoding="utf-8")
        if lines := missed(chosen):
            raise SystemExit("\n".join(("goals that were missed:", *lines)))
    else:
        print(record(arguments.name, sys.stdin.read().splitlines()))


if __name__ == "__main__":
    main()
