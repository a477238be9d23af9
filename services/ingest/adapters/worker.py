"""The worker process: `python -m services.ingest.adapters.worker FOLDER MEMORY_BYTES_MAX`.

Reads one task from the folder, works with tunery.data, writes one answer. It ends when its parent
does, because then its stdin ends.
"""

import os
import resource
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Final, assert_never

import msgspec

from services.ingest.adapters.refusals import refused
from services.ingest.adapters.tasks import (
    ANSWER_FILE,
    TASK_FILE,
    Answer,
    CheckAnswer,
    CheckTask,
    PrepareAnswer,
    PrepareTask,
    Refusal,
    Screen,
    Task,
)
from services.ingest.ports import Checked, Counted, Packed
from tunery.data import preparing
from tunery.data.checking import check
from tunery.data.reports.report import CheckReport
from tunery.data.screening import benchmarks
from tunery.data.screening.contamination import BenchmarkItem
from tunery.data.tokens.tokenizer import BaseUnusable

NICENESS: Final = 5  # rows wait for decisions, never the other way round
EXIT_ORPHANED: Final = 3


def main(folder: Path, memory_bytes_max: int) -> None:
    threading.Thread(target=leave_with_parent, daemon=True).start()
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes_max, memory_bytes_max))
    task = msgspec.json.decode((folder / TASK_FILE).read_bytes(), type=Task)
    part = folder / f"{ANSWER_FILE}.part"
    part.write_bytes(msgspec.json.encode(work(task)))
    part.replace(folder / ANSWER_FILE)


def leave_with_parent() -> None:
    while os.read(0, 1):  # not sys.stdin: its lock would be held when the interpreter ends
        continue
    os._exit(EXIT_ORPHANED)


def work(task: Task) -> Answer:
    match task:
        case CheckTask():
            return CheckAnswer(checked=check_file(task))
        case PrepareTask():
            return prepare_file(task)
        case _:
            assert_never(task)


def check_file(task: CheckTask) -> Checked:
    """Check under every base; the file is accepted when any of them can train on it.

    The report shown is that of the first base that accepts, else of the first.
    """
    check_one = partial(
        check,
        Path(task.path),
        max_rows=task.rows_max,
        policy=task.screen.policy,
        benchmarks=items_of(task.screen),
    )
    reports: list[CheckReport] = []
    counted: list[Counted] = []
    unusable: list[str] = []
    for base in sorted(task.bases, key=lambda base: base.base_id):
        try:
            report = check_one(base_dir=Path(base.path))
        except BaseUnusable as error:
            unusable.append(f"{base.base_id}: {error}")
            continue
        reports.append(report)
        if report.verdict == "accepted" and report.tokens is not None:
            counted.append(
                Counted(
                    base_id=base.base_id,
                    base_sha256=base.sha256,
                    tokens=report.tokens.tokens,
                    trainable_tokens=report.tokens.trainable_tokens,
                    longest_row_tokens=report.tokens.longest_row_tokens,
                    plans=report.tokens.plans,
                )
            )
    reports = reports or [check_one()]
    shown = next((it for it in reports if it.verdict == "accepted"), reports[0])
    refusal = None if shown.verdict == "accepted" else refused(shown, task.rows_max)
    return Checked(
        accepted=refusal is None,
        dialect=shown.dialect or "unknown",
        rows=shown.rows,
        errors=shown.error_count,
        warnings=shown.warning_count,
        counted=tuple(counted),
        report=shown.to_json().decode(),
        code=None if refusal is None else refusal.code,
        message=None if refusal is None else refusal.message,
        unusable=tuple(unusable),
    )


def items_of(screen: Screen) -> list[BenchmarkItem]:
    return benchmarks.load(Path(screen.benchmarks)) if screen.benchmarks is not None else []


def prepare_file(task: PrepareTask) -> PrepareAnswer | Refusal:
    spec = task.spec
    try:
        made = preparing.prepare(
            Path(task.training),
            Path(task.base.path),
            Path(task.folder),
            max_length=spec.max_length,
            length_policy=spec.length_policy,
            validation_fraction_ppm=spec.validation_fraction_ppm,
            seed=spec.seed,
            validation_path=None if task.validation is None else Path(task.validation),
            screen=task.screen.policy,
            benchmarks=items_of(task.screen),
            work_dir=Path(task.work),
        )
    except (preparing.DataRefused, BaseUnusable) as error:
        return Refusal(message=str(error))
    train, validation = made.manifest.train, made.manifest.validation
    packed = Packed(
        version=made.key,
        train=str(made.train_path),
        validation=str(made.validation_path),
        prompts=str(made.prompts_path),
        train_rows=train.rows,
        validation_rows=validation.rows,
        packed_rows=train.packed_rows,
        tokens=train.tokens,
        trainable_tokens=train.trainable_tokens,
    )
    return PrepareAnswer(packed=packed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
