"""The folder that an account is read into. Whatever has its final name is complete.

manifest.json           what is there, with sizes and SHA-256, and what could not be had
files/file-….jsonl      rows as they were uploaded; `.part` while they come
files/file-….json       fields of the file, with its SHA-256
jobs/ftjob-….json       a job, its events and checkpoints
evals/eval_….json       an eval, its runs, and what each asked and was answered
completions.jsonl       stored completions with what was asked; only its whole lines count
kept/                   rows of both
teacher.jsonl           answers of old models, and what each request cost
data/, recipes/         what the plan makes of them, and plan.json
submitted.json          jobs there → jobs here
answers.jsonl           answers of moved models
"""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from tunery.data.tokens.chunks import write_atomically
from tunery.local.errors import LocalError

NAME: Final = re.compile(r"[A-Za-z0-9][\w.:-]{0,199}")  # of an id that may become a file's name
MANIFEST_VERSION: Final = 1


class ExportFolder:
    """A folder with what was read of one account."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files, self.jobs, self.evals = root / "files", root / "jobs", root / "evals"
        self.kept = root / "kept"
        self.data, self.recipes = root / "data", root / "recipes"

    def has_manifest(self) -> bool:
        return (self.root / "manifest.json").is_file()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the folder for this process. Raises LocalError while another one has it."""
        for folder in (self.files, self.jobs, self.evals, self.kept, self.data, self.recipes):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.root.chmod(0o700)  # training rows are private to the user
        with (self.root / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                fix = "wait until it has ended, or name another folder with --to"
                raise LocalError(f"another import writes to {self.root}", fix) from None
            yield

    def of(self, url: str) -> None:
        """Claim the folder for the account at a URL. Raises LocalError where it has another one."""
        path = self.root / "account.json"
        known = read(path, {})
        if known.get("base_url", url) != url:
            fix = "name another folder with --to"
            raise LocalError(f"{self.root} has what was read from {known['base_url']}", fix)
        write(path, {"folder": uuid4().hex, **known, "base_url": url})

    def idempotency_key(self, job_id: str) -> str:
        """Return the key with which a job is submitted: of this folder, the same in every run."""
        folder = read(self.root / "account.json", {}).get("folder", "openai")
        return f"import-{folder}-{job_id}"

    def content(self, file_id: str) -> Path:
        return self.files / f"{file_id}.jsonl"

    def file(self, file_id: str) -> dict[str, Any] | None:
        """Return the fields of a file that is here; None: it is not."""
        if not self.content(file_id).is_file():
            return None
        fields: dict[str, Any] | None = read(self.files / f"{file_id}.json", None)
        return fields

    def keep(self, fields: Mapping[str, Any]) -> None:
        """Record a file whose content is here, with its SHA-256."""
        path = self.content(fields["id"])
        with path.open("rb") as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
        size = path.stat().st_size
        record = {**fields, "sha256": sha256, "bytes_here": size}
        write(self.files / f"{fields['id']}.json", record)

    def job(self, job_id: str) -> dict[str, Any] | None:
        fields: dict[str, Any] | None = read(self.jobs / f"{job_id}.json", None)
        return fields

    def all_jobs(self) -> list[dict[str, Any]]:
        """Return the jobs that are here, newest first."""
        jobs = [read(path, {}) for path in self.jobs.glob("*.json")]
        return sorted(jobs, key=lambda job: (-job["created_at"], job["id"]))

    def completions(self) -> Iterator[dict[str, Any]]:
        """Yield the stored completions that are here."""
        return read_lines(self.root / "completions.jsonl")

    def add_completion(self, completion: Mapping[str, Any]) -> None:
        append_line(self.root / "completions.jsonl", completion)

    def submitted(self) -> dict[str, str]:
        """Return the jobs here, by those there."""
        jobs: dict[str, str] = read(self.root / "submitted.json", {})
        return jobs

    def write_manifest(self, missing: list[dict[str, str]]) -> dict[str, Any]:
        """Write and return the list of what is here."""
        files = sorted(self.files.glob("*.json"))
        manifest = {
            "version": MANIFEST_VERSION,
            "base_url": read(self.root / "account.json", {}).get("base_url"),
            "files": [
                {
                    "id": file["id"],
                    "name": file.get("filename"),
                    "path": f"files/{file['id']}.jsonl",
                    "bytes": file["bytes_here"],
                    "sha256": file["sha256"],
                }
                for file in (read(path, {}) for path in files)
            ],
            "jobs": [
                {"id": job["id"], "status": job["status"], "path": f"jobs/{job['id']}.json"}
                for job in self.all_jobs()
            ],
            "evals": [
                {"id": path.stem, "path": f"evals/{path.name}"}
                for path in sorted(self.evals.glob("*.json"))
            ],
            "completions": sum(1 for _ in self.completions()),
            "missing": missing,
        }
        write(self.root / "manifest.json", manifest)
        return manifest


def is_name(text: Any) -> bool:
    """Whether an id can be the name of a file: an account says what it likes."""
    return isinstance(text, str) and NAME.fullmatch(text) is not None


def read(path: Path, otherwise: Any) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else otherwise


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON of each whole line; a killed process may have left a part of the last one."""
    if path.is_file():
        with path.open("rb") as lines:
            yield from (json.loads(line) for line in lines if line.endswith(b"\n"))


def append_line(path: Path, value: Any) -> None:
    """Add a line of JSON that is on the disk when this returns, after the last whole line."""
    with path.open("ab+") as lines:
        end = lines.tell()
        if end:
            lines.seek(end - 1)
            if lines.read(1) != b"\n":
                lines.seek(0)
                lines.truncate(lines.read().rfind(b"\n") + 1)
        lines.write(json.dumps(value, ensure_ascii=False).encode() + b"\n")
        lines.flush()
        os.fsync(lines.fileno())


def write(path: Path, value: Any) -> None:
    """Write a file completely or not at all, also when the process is killed."""
    write_atomically(path, json.dumps(value, ensure_ascii=False, indent=1).encode() + b"\n")
