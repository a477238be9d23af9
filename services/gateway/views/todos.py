"""Rows to do that the projections write: their kinds, ids and bodies."""

from collections.abc import Mapping
from typing import Final

from schemas.envelope import Message
from schemas.ids import FILE, derived_id
from schemas.units import Ms

REFUSED_SENDER: Final = "refused_sender"  # note a refused command in the audit log
BATCH_ROWS: Final = "batch_rows"  # answer the rows of a batch
BATCH_FILES: Final = "batch_files"  # write the files of a batch whose rows have ended
IMPORT_RUN: Final = "import"  # read an account of another service
IMPORT_KEY: Final = "import_key"  # destroy the key of an import that has ended
RESULTS: Final = "results"  # to-do: write an ended job's metrics as a file
#: the same for a tool: kind of the row → column of the job
MIRROR_FILES: Final[Mapping[str, str]] = {
    "tensorboard": "tensorboard_file",
    "wandb": "wandb_file",
}


class SenderRefused(Message):
    """A command that the owner of a stream refused because of its sender."""

    # stream, at: stream of the owner, and time of the refusal
    stream: str
    at: Ms
    # sender, command, reason: as the owner recorded them
    sender: str
    command: str
    reason: str
    # operator, entry: who blocked it, and that entry of the journal; empty: not blocked
    operator: str = ""
    entry: str = ""


def result_file_id(tenant: str, job_id: str, kind: str) -> str:
    """The id of a job's file of this kind of to-do row."""
    return FILE + derived_id(tenant, job_id, kind)


def results_id(tenant: str, job_id: str) -> str:
    """The id of the to-do row for writing a job's result file."""
    return f"{tenant}/{job_id}"
