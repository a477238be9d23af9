"""The program that reads an account for a server, and the files that it leaves in its folder."""

from typing import Final

PROGRAM: Final = "tunery.exit_kit.program"
OUTCOME: Final = "import.json"  # what is there, and what is planned
ASKED: Final = "asked.json"  # what became of the questions of each job
ANSWERS: Final = "old-models.jsonl"  # what old models answered
