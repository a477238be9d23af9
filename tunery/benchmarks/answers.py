"""Read the number that a written answer to a benchmark's item ends with."""

import re
from typing import Final

MARKED: Final = re.compile(r"#### (-?[0-9.,]+)")
NUMBER: Final = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")
STOPS: Final = ("Question:", "\n\n\n")  # where a model continues with its own question


def number_of(text: str) -> str:
    """Return the number after `####`, or else the last one of the text; empty: there is none.

    As lm-evaluation-harness reads GSM8K: its strict match, or else its flexible one.
    """
    for stop in STOPS:
        text = text.split(stop, 1)[0]
    marked = MARKED.search(text)
    if marked is not None:
        return _plain(marked[1])
    numbers = NUMBER.findall(text)
    return _plain(numbers[-1]) if numbers else ""


def _plain(number: str) -> str:
    return number.replace(",", "").replace("$", "").removesuffix(".")
