"""Reads an account into a folder. What is there already is not asked for again."""

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tunery.exit_kit.account import NotToBeHad, OpenAIAccount
from tunery.exit_kit.folder import ExportFolder, is_name, read, write
from tunery.local.errors import LocalError

ENDED: Final = ("succeeded", "failed", "cancelled")
RUN_ENDED: Final = ("completed", "failed", "canceled")
COMPLETIONS_SAID: Final = 1_000  # between two lines of progress
FREE_BYTES_MIN: Final = 64 * 1024 * 1024  # that stay free beside the files
JOBS_SAID: Final = 100  # between two lines of progress
Say = Callable[[str], None]


@dataclass
class Contents:
    """What an account lists. missing: what it names and does not hand out, with the reason."""

    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    missing: list[dict[str, str]] = field(default_factory=list)

    def miss(self, kind: str, name: str, reason: str) -> None:
        self.missing.append({"kind": kind, "id": name, "reason": reason})

    @property
    def bytes(self) -> int:
        return sum(file.get("bytes") or 0 for file in self.files.values())


def list_account(account: OpenAIAccount, say: Say) -> Contents:
    """List files and jobs; also files that only jobs name. Raises LocalError."""
    contents = Contents()
    say(f"{account.url}: files and jobs are listed; what fails is tried for up to a minute")
    for file in account.files():
        _named(contents, "file", file, lambda file: contents.files.update({file["id"]: file}))
    for job in account.jobs():
        _named(contents, "job", job, contents.jobs.append)
        if len(contents.jobs) % JOBS_SAID == 0:
            say(f"{len(contents.jobs):,} jobs listed")
    for file_id in dict.fromkeys(_files_of(contents.jobs)):
        if file_id in contents.files:
            continue
        try:
            if not is_name(file_id):
                raise NotToBeHad("its id cannot be the name of a file")
            contents.files[file_id] = account.file(file_id)
        except NotToBeHad as error:
            contents.miss("file", file_id, str(error))
    return contents


def _named(
    contents: Contents, kind: str, item: dict[str, Any], add: Callable[[dict[str, Any]], None]
) -> None:
    if is_name(item.get("id")):
        add(item)
    else:
        contents.miss(kind, str(item.get("id"))[:200], "its id cannot be the name of a file")


def _files_of(jobs: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for job in jobs:
        yield from (job[name] for name in ("training_file", "validation_file") if job.get(name))


def read_account(
    account: OpenAIAccount, folder: ExportFolder, say: Say, bytes_max: int | None = None
) -> dict[str, Any]:
    """Read everything that is not in the folder yet, and return the manifest.

    bytes_max: of all files of the account; None: what the disk has room for
    Raises LocalError, OSError: the same call again goes on where this one ended.
    """
    folder.of(account.url)
    contents = list_account(account, say)
    wanted = [file for name, file in contents.files.items() if folder.file(name) is None]
    if bytes_max is not None and contents.bytes > bytes_max:
        text = f"the files have {contents.bytes / 1e6:,.0f} MB; at most {bytes_max / 1e6:,.0f}"
        raise LocalError(f"{text} are read", "read it with `tunery import` where there is room")
    _check_space(folder, wanted)
    _read_jobs(account, folder, contents, say)
    for number, file in enumerate(wanted, 1):
        say(f"file {number:,} of {len(wanted):,}: {file.get('filename') or file['id']}")
        try:
            _read_file(account, folder, file, say)
        except NotToBeHad as error:
            contents.miss("file", file["id"], str(error))
    _read_evals(account, folder, contents, say)
    _read_completions(account, folder, contents, say)
    return folder.write_manifest(contents.missing)


def _check_space(folder: ExportFolder, wanted: list[dict[str, Any]]) -> None:
    """Raises LocalError where the files do not fit on the disk."""
    parts = sum(path.stat().st_size for path in folder.files.glob("*.part"))
    needed = sum(file.get("bytes") or 0 for file in wanted) - parts
    free = shutil.disk_usage(folder.root).free
    if needed > 0 and needed + FREE_BYTES_MIN > free:
        text = (
            f"{folder.root} has {free / 1e6:,.0f} MB free, and the files need {needed / 1e6:,.0f}"
        )
        raise LocalError(text, "free its disk, or name a folder on another one with --to")


def _read_jobs(account: OpenAIAccount, folder: ExportFolder, contents: Contents, say: Say) -> None:
    for number, job in enumerate(contents.jobs, 1):
        known = folder.job(job["id"])
        if known is None or known["status"] not in ENDED:  # one that has ended stays as it is
            details: dict[str, Any] = {}
            for name, fetch in (("events", account.events), ("checkpoints", account.checkpoints)):
                try:
                    details[name] = fetch(job["id"])
                except NotToBeHad as error:
                    contents.miss(name, job["id"], str(error))
            write(folder.jobs / f"{job['id']}.json", {**job, **details})
        if number % JOBS_SAID == 0:
            say(f"{number:,} of {len(contents.jobs):,} jobs read")


def _read_evals(account: OpenAIAccount, folder: ExportFolder, contents: Contents, say: Say) -> None:
    """Read evals, and what their ended runs asked and were answered; a run is read once."""
    evals: list[dict[str, Any]] = []
    try:
        for item in account.evals():
            _named(contents, "eval", item, evals.append)
    except NotToBeHad as error:
        contents.miss("evals", "all", str(error))
    for number, item in enumerate(evals, 1):
        say(f"eval {number:,} of {len(evals):,}: {item.get('name') or item['id']}")
        path = folder.evals / f"{item['id']}.json"
        known = {run["id"]: run for run in read(path, {"runs": []})["runs"]}
        runs = []
        try:
            for run in account.eval_runs(item["id"]):
                if run.get("status") not in RUN_ENDED:
                    continue
                if run["id"] not in known:
                    run |= {"output_items": account.output_items(item["id"], run["id"])}
                runs.append(known.get(run["id"], run))
        except NotToBeHad as error:
            contents.miss("runs of an eval", item["id"], str(error))
        write(path, {**item, "runs": runs})


def _read_completions(
    account: OpenAIAccount, folder: ExportFolder, contents: Contents, say: Say
) -> None:
    known = {completion["id"] for completion in folder.completions()}
    try:
        for number, item in enumerate(account.completions(), 1):
            if number % COMPLETIONS_SAID == 0:
                say(f"{number:,} stored completions listed")
            if item["id"] in known:
                continue
            try:
                folder.add_completion({**item, "messages": account.messages(item["id"])})
            except NotToBeHad as error:
                contents.miss("completion", item["id"], str(error))
    except NotToBeHad as error:
        contents.miss("completions", "all", str(error))


def _read_file(
    account: OpenAIAccount, folder: ExportFolder, file: dict[str, Any], say: Say
) -> None:
    """Read the content of a file. Raises NotToBeHad, OSError."""
    path = folder.content(file["id"])
    part = path.with_suffix(".part")
    size = file.get("bytes") or 0
    if not path.exists():  # a run may have been killed after the content and before its fields
        done, said_at = part.stat().st_size if part.exists() else 0, 0
        if not 0 < done <= size:  # nothing that could be continued
            part.unlink(missing_ok=True)
            done = 0

        def progress(count: int) -> None:
            nonlocal done, said_at
            done += count
            if size and 10 * done // size > said_at and size > FREE_BYTES_MIN:
                said_at = 10 * done // size
                say(f"  {100 * done // size} % of {size / 1e6:,.0f} MB")

        if not size or done != size:
            account.download(file["id"], part, progress)
        came = part.stat().st_size
        if size and came != size:
            part.unlink()
            raise NotToBeHad(f"{came:,} bytes came, and the account says {size:,}")
        with part.open("rb") as content:
            os.fsync(content.fileno())
        part.replace(path)
    folder.keep(file)
