"""instructor: rows out of `Instructions.distil`, then its command line trains on them.

`instructor_script.py ROWS` prints the job and its model as JSON. The rows are function calls.
"""

import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

from instructor import Instructions
from openai import OpenAI
from pydantic import BaseModel

ENDED = ("succeeded", "failed", "cancelled")
ROWS = 24


class Sum(BaseModel):
    """A sum of two numbers."""

    total: int


def write_rows(path: Path) -> None:
    instructions = Instructions(name="sums", log_handlers=[logging.FileHandler(path)])
    instructions.logger.setLevel(logging.INFO)

    def add(first: int, second: int) -> Sum:
        """Add two numbers."""
        return Sum(total=first + second)

    distilled = instructions.distil(add)
    for number in range(ROWS):
        distilled(number, 3 * number)


def main() -> dict[str, str]:
    rows = "sums.jsonl"
    write_rows(Path(rows))
    client, cli = OpenAI(), (sys.executable, "-m", "instructor.cli.cli")
    subprocess.run([*cli, "files", "upload", rows, "--poll", "1"], check=True)
    file_id = client.files.list().data[0].id
    command = ["jobs", "create-from-file", rows, "--model", os.environ["TUNERY_MODEL"]]
    watching = subprocess.Popen(
        [*cli, *command, "--n-epochs", "1", "--model-suffix", "sums", "--poll", "1"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200", "PYTHONUNBUFFERED": "1"},
    )
    try:
        while not (jobs := client.fine_tuning.jobs.list(limit=1).data) or (
            jobs[0].to_dict()["user_provided_suffix"] != "sums" or jobs[0].status not in ENDED
        ):
            assert watching.poll() is None, watching.communicate()
            time.sleep(1)
    finally:
        watching.terminate()
    said = watching.communicate()[0]
    assert f"Fine-tuning job created with ID: {jobs[0].id}" in " ".join(said.split()), said
    subprocess.run([*cli, "files", "delete", file_id], check=True)
    assert file_id not in [file.id for file in client.files.list()]
    return {"job": jobs[0].id, "model": str(jobs[0].fine_tuned_model)}


if __name__ == "__main__":
    print(json.dumps(main()))
