"""The last lines of a process's standard error, without anything that a tenant may have written.

Messages of exceptions quote rows, names and answers, so they stay sealed in the report to the pool.
What is left says where it failed: frames of tracebacks, names of exceptions, and lines in which a
machine says that it is broken or out of memory.
"""

import re
from typing import Final

from tunery.work.exits import MACHINE_WORDS

LINES_MAX: Final = 12
FRAME: Final = re.compile(
    r' *File "(?P<path>[^"\n]{1,200})", line (?P<line>\d+), in (?P<name>[\w<>.]+)'
)
RAISED: Final = re.compile(
    r"(?P<name>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Missing|Corrupt))(?::.*)?"
)
#: fixed words; the rest of the line is not reported
MACHINE: Final = (*MACHINE_WORDS, "out of memory", "segmentation fault", "killed")


def error_lines(text: str) -> tuple[str, ...]:
    """The last lines that name a place, an exception or a broken machine, oldest first."""
    named = [line for line in map(_named, text.splitlines()) if line is not None]
    return tuple(named[-LINES_MAX:])


def _named(line: str) -> str | None:
    """Return the part of a line of standard error that is safe to log; None: nothing is."""
    if frame := FRAME.fullmatch(line):
        path = "/".join(frame["path"].split("/")[-3:])  # no folder of a lease, base model or person
        return f"{path}:{frame['line']} {frame['name']}"
    words = ", ".join(word for word in MACHINE if word in line.lower())
    if raised := RAISED.fullmatch(line):
        return f"{raised['name']}: {words}" if words else raised["name"]
    return words or None
