"""The worker process: `run(FOLDER, MEMORY_BYTES_MAX)`, forked or as a program.

Reads one task from the folder, processes it with tunery.data, and writes one answer. It ends with
its parent, because its standard input is closed then.
"""

import os
import resource
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from schemas import errors
from schemas.dataset import BaseTokens
from schemas.envelope import Reason
from schemas.reasons import Failure, rejecting
from schemas.records import build_from
from services.ingest.adapters.tasks import (
    ANSWER_FILE,
    TASK_FILE,
    Answer,
    CheckTask,
    PreparedAnswer,
    PrepareTask,
    RefusedAnswer,
    ScreeningTask,
    Task,
)
from services.ingest.ports import CheckedFile
from tunery.data import preparing
from tunery.data.checking import check
from tunery.data.findings.limits import ROWS_MAX, ROWS_MIN
from tunery.data.mixing import MixedSource
from tunery.data.reports.report import CheckReport
from tunery.data.screening import benchmarks
from tunery.data.screening.contamination import BenchmarkItem
from tunery.data.tokens.base_variants import write_tokenizer
from tunery.data.tokens.tokenizer import BaseUnusable, warm

TOO_FEW_ROWS: Final = frozenset({"empty_file", "header_only", "too_few_rows"})
TOO_MANY_ROWS: Final = "too_many_rows"
DROPS_TEXT: Final = "template_drops_text"

TOKENIZER: Final = "tokenizer"  # folder of a job's own, next to what is prepared
EXIT_ORPHANED: Final = 3
__all__ = ("process", "run", "warm")  # `warm` for the fork server


def run(name: str, memory_bytes_max: str) -> None:
    """Process the task in a folder with at most this much memory."""
    threading.Thread(target=exit_with_parent, daemon=True).start()
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory_bytes_max),) * 2)
    folder = Path(name)
    task = msgspec.json.decode((folder / TASK_FILE).read_bytes(), type=Task)
    part = folder / f"{ANSWER_FILE}.part"
    part.write_bytes(msgspec.json.encode(process(task)))
    part.replace(folder / ANSWER_FILE)


def exit_with_parent() -> None:
    """Exit when the parent process ends and closes our standard input."""
    while os.read(0, 1):  # not sys.stdin: its lock would be held when the interpreter ends
        continue
    os._exit(EXIT_ORPHANED)


def process(task: Task) -> Answer:
    match task:
        case CheckTask():
            return check_file(task)
        case PrepareTask():
            return prepare_file(task)
        case _:
            assert_never(task)


def check_file(task: CheckTask) -> CheckedFile:
    """Check a file under every base model; it is accepted when any of them can train on it.

    The report is that of the first base model that accepts it, else that of the first one. Rows
    whose reasoning a template leaves out are checked without it as well.
    """
    check_rows = partial(
        check,
        Path(task.path),
        max_rows=task.rows_max,
        policy=task.screen.policy,
        benchmarks=load_items(task.screen),
    )
    reports: list[CheckReport] = []
    tokens: list[BaseTokens] = []
    unusable: list[str] = []
    for base in sorted(task.bases, key=lambda base: base.base_id):
        try:
            report = check_rows(base_dir=Path(base.path))
            if with_drop := DROPS_TEXT in report.counts:  # a job may drop the reasoning
                reports.append(report)
                report = check_rows(base_dir=Path(base.path), reasoning="drop")
        except BaseUnusable as error:
            unusable.append(f"{base.base_id}: {error}")
            continue
        reports.append(report)
        if report.verdict == "accepted" and report.tokens is not None:
            counted = build_from(BaseTokens, report.tokens, base, base_sha256=base.sha256)
            tokens.append(replace(counted, reasoning="drop") if with_drop else counted)
    reports = reports or [check_rows()]
    shown = next((report for report in reports if report.verdict == "accepted"), reports[0])
    accepted = shown.verdict == "accepted"
    return CheckedFile(
        accepted=accepted,
        dialect=shown.dialect or "unknown",
        rows=shown.rows,
        errors=shown.error_count,
        warnings=shown.warning_count,
        tokens=tuple(tokens),
        report=shown.to_json().decode(),
        failure=None if accepted else file_rejection(shown, task.rows_max),
        unusable=tuple(unusable),
    )


def load_items(screen: ScreeningTask) -> list[BenchmarkItem]:
    return benchmarks.load(Path(screen.benchmarks)) if screen.benchmarks is not None else []


def prepare_file(task: PrepareTask) -> PreparedAnswer | RefusedAnswer:
    """Prepare the files of a task; refused when rows or the base model cannot be used."""
    spec, base = task.spec, Path(task.base.path)
    try:
        if task.chat is not None:
            own = Path(task.folder).with_name(TOKENIZER)
            base = write_tokenizer(base, task.chat, own)
        prepared = preparing.prepare(
            Path(task.training),
            base,
            Path(task.folder),
            max_length=spec.max_length,
            length_policy=spec.length_policy,
            validation_fraction_ppm=spec.validation_fraction_ppm,
            seed=spec.seed,
            validation_path=None if task.validation is None else Path(task.validation),
            screen=task.screen.policy,
            benchmarks=load_items(task.screen),
            work_dir=Path(task.work),
            rows=spec.rows,
            reasoning=spec.reasoning,
            mixture=[MixedSource(Path(file.path), file.weight_ppm) for file in task.mixture],
        )
    except (preparing.DataRefused, BaseUnusable) as error:
        return RefusedAnswer(message=str(error))
    return PreparedAnswer(manifest=prepared.manifest, reused=prepared.reused)


def file_rejection(report: CheckReport, rows_max: int | None) -> Failure:
    """Return why a file with errors in its report is rejected. rows_max: the tenant's limit."""
    codes = {error.code for error in report.errors}
    if TOO_MANY_ROWS in codes:
        limit = ROWS_MAX if rows_max is None else min(rows_max, ROWS_MAX)
        return Failure(code=errors.EXAMPLES, reason=rejecting("rows_too_many", limit=limit))
    if codes <= TOO_FEW_ROWS:
        few = rejecting("rows_too_few", rows=report.rows, limit=ROWS_MIN)
        return Failure(code=errors.EXAMPLES, reason=few)
    return Failure(code=errors.FILE_REJECTED, reason=_first_error(report))


def _first_error(report: CheckReport) -> Reason:
    first = min(report.errors, key=lambda error: (error.row is None, error.row or 0))
    if first.row is None:
        return rejecting("file_invalid", finding=first.code, errors=report.error_count)
    return rejecting("row_invalid", row=first.row, finding=first.code, errors=report.error_count)


if __name__ == "__main__":
    run(*sys.argv[1:])
