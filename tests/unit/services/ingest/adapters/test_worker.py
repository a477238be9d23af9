"""The work of the worker process, done here: files under several base models."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.dataset import PrepareSpec
from schemas.reasons import rejecting
from services.ingest.adapters.tasks import (
    CheckTask,
    PreparedAnswer,
    PrepareTask,
    RefusedAnswer,
    ScreeningTask,
)
from services.ingest.adapters.worker import check_file, file_rejection, prepare_file, process
from services.ingest.ports import CheckedFile, LocalBase
from tests.unit.services.ingest.base import TEMPLATE, make_base, rows
from tunery.data.findings.finding import Finding, Note
from tunery.data.findings.limits import ROWS_MAX
from tunery.data.reports.report import CheckReport
from tunery.work.own_chat import OwnChat

SHA = "a" * 64


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> LocalBase:
    folder = make_base(tmp_path_factory.mktemp("bases") / "small")
    return LocalBase(base_id="small", sha256=SHA, path=str(folder))


def check_task(path: Path, *bases: LocalBase, rows_max: int | None = None) -> CheckTask:
    return CheckTask(path=str(path), bases=bases, screen=ScreeningTask(), rows_max=rows_max)


def written(folder: Path, content: bytes) -> Path:
    path = folder / "rows.jsonl"
    path.write_bytes(content)
    return path


def unusable(base: LocalBase, folder: Path) -> LocalBase:
    return replace(base, base_id="broken", path=str(folder / "missing"))


def test_tokens_are_counted_for_each_base_in_the_order_of_their_ids(
    base: LocalBase, tmp_path: Path
) -> None:
    bases = (base, replace(base, base_id="another"))
    checked = process(check_task(written(tmp_path, rows(12)), *bases))
    assert isinstance(checked, CheckedFile)
    assert (checked.accepted, checked.rows, checked.failure) == (True, 12, None)
    assert [tokens.base_id for tokens in checked.tokens] == ["another", "small"]
    assert checked.tokens[0].tokens == checked.tokens[1].tokens > 0


def test_a_base_that_cannot_be_used_is_named_and_the_others_decide(
    base: LocalBase, tmp_path: Path
) -> None:
    path = written(tmp_path, rows(12))
    checked = check_file(check_task(path, unusable(base, tmp_path), base))
    assert checked.accepted
    assert [tokens.base_id for tokens in checked.tokens] == ["small"]
    (reason,) = checked.unusable
    assert reason.startswith("broken: ")


def test_without_a_usable_base_the_rows_are_checked_without_tokens(
    base: LocalBase, tmp_path: Path
) -> None:
    checked = check_file(check_task(written(tmp_path, rows(12)), unusable(base, tmp_path)))
    assert (checked.accepted, checked.rows, checked.tokens) == (True, 12, ())


@pytest.mark.parametrize(
    ("content", "rows_max", "code"),
    [
        (b"", None, errors.EXAMPLES),
        (rows(3), None, errors.EXAMPLES),
        (rows(12), 11, errors.EXAMPLES),
        (rows(12) + b"{torn\n", None, errors.FILE_REJECTED),
    ],
)
def test_a_rejected_file_has_a_code_and_no_tokens(
    content: bytes, rows_max: int | None, code: str, base: LocalBase, tmp_path: Path
) -> None:
    checked = check_file(check_task(written(tmp_path, content), base, rows_max=rows_max))
    assert (checked.accepted, checked.tokens) == (False, ())
    assert checked.failure is not None
    assert checked.failure.code == code


def prepare_task(folder: Path, path: Path, base: LocalBase) -> PrepareTask:
    (folder / "work").mkdir(exist_ok=True)
    spec = PrepareSpec(
        base_id=base.base_id,
        base_sha256=SHA,
        max_length=256,
        length_policy="reject",
        validation_fraction_ppm=100_000,
        seed=1,
    )
    return PrepareTask(
        training=str(path),
        validation=None,
        base=base,
        spec=spec,
        folder=str(folder / "prepared"),
        work=str(folder / "work"),
        screen=ScreeningTask(),
    )


def test_files_are_prepared_into_the_folder_of_the_task(base: LocalBase, tmp_path: Path) -> None:
    answer = process(prepare_task(tmp_path, written(tmp_path, rows(20)), base))
    assert isinstance(answer, PreparedAnswer)
    assert (tmp_path / "prepared").is_dir()


def test_rows_or_a_base_that_cannot_be_used_are_refused_with_a_message(
    base: LocalBase, tmp_path: Path
) -> None:
    path = written(tmp_path, rows(20))
    no_base = prepare_file(prepare_task(tmp_path, path, unusable(base, tmp_path)))
    path.write_bytes(b"{torn\n")
    no_rows = prepare_file(prepare_task(tmp_path, path, base))
    for answer in (no_base, no_rows):
        assert isinstance(answer, RefusedAnswer)
        assert answer.message
    assert not (tmp_path / "prepared").exists()


def reasoned(count: int) -> bytes:
    lines = []
    for line in rows(count).splitlines():
        row = json.loads(line)
        row["messages"][1]["reasoning_content"] = "The lamp is far away."
        lines.append(json.dumps(row))
    return ("\n".join(lines) + "\n").encode()


def test_bases_f7_reasoning_that_a_template_leaves_out_trains_once_it_is_dropped(
    base: LocalBase, tmp_path: Path
) -> None:
    path = written(tmp_path, reasoned(20))
    checked = check_file(check_task(path, base))
    assert checked.accepted
    assert [tokens.reasoning for tokens in checked.tokens] == ["drop"]
    kept = prepare_task(tmp_path, path, base)
    refused = prepare_file(kept)
    assert isinstance(refused, RefusedAnswer)
    assert "template_drops_text" in refused.message
    dropped = prepare_file(replace(kept, spec=replace(kept.spec, reasoning="drop")))
    assert isinstance(dropped, PreparedAnswer)
    manifest = dropped.manifest
    assert (manifest.reasoning, manifest.train.rows + manifest.validation.rows) == ("drop", 20)
    plain = prepare_file(prepare_task(tmp_path, written(tmp_path, rows(20)), base))
    assert isinstance(plain, PreparedAnswer)
    assert plain.manifest.train.tokens == manifest.train.tokens
    assert checked.tokens[0].tokens == manifest.train.tokens + manifest.validation.tokens


def error(code: str, row: int | None = None) -> Finding:
    return Note(code, detail="a secret word", excerpt="a secret word").to_finding(row, row)


def report(*listed: Finding, rows: int = 3, count: int | None = None) -> CheckReport:
    return CheckReport(
        verdict="rejected",
        format="jsonl",
        dialect=None,
        file_bytes=1,
        rows=rows,
        rows_with_errors=1,
        distinct_rows=0,
        errors=listed,
        warnings=(),
        counts={},
        error_count=len(listed) if count is None else count,
        warning_count=0,
    )


@pytest.mark.parametrize("code", ["empty_file", "header_only", "too_few_rows"])
def test_too_few_rows_are_counted_as_openai_does(code: str) -> None:
    rejection = file_rejection(report(error(code), rows=7), None)
    assert rejection.code == errors.EXAMPLES
    assert rejection.reason == rejecting("rows_too_few", rows=7, limit=10)


@pytest.mark.parametrize(
    ("rows_max", "limit"), [(None, ROWS_MAX), (50, 50), (ROWS_MAX + 1, ROWS_MAX)]
)
def test_too_many_rows_name_the_lowest_limit(rows_max: int | None, limit: int) -> None:
    rejection = file_rejection(report(error("too_many_rows")), rows_max)
    assert rejection.code == errors.EXAMPLES
    assert rejection.reason == rejecting("rows_too_many", limit=limit)


def test_the_first_row_is_named_before_the_whole_file() -> None:
    rejection = file_rejection(
        report(error("too_few_rows"), error("invalid_json", 5), error("invalid_json", 2)), None
    )
    assert rejection.code == errors.FILE_REJECTED
    assert rejection.reason == rejecting("row_invalid", row=2, finding="invalid_json", errors=3)


def test_a_single_error_is_not_counted_and_no_row_is_quoted() -> None:
    rejection = file_rejection(report(error("invalid_json", 1)), None)
    assert rejection.reason == rejecting("row_invalid", row=1, finding="invalid_json", errors=1)
    assert "secret" not in str(rejection)


def test_an_error_of_the_whole_file_has_no_position() -> None:
    rejection = file_rejection(report(error("invalid_json"), count=1_500), None)
    assert rejection.reason == rejecting("file_invalid", finding="invalid_json", errors=1_500)


def test_bases_f7_rows_are_prepared_with_the_template_of_the_job(
    base: LocalBase, tmp_path: Path
) -> None:
    task = prepare_task(tmp_path, written(tmp_path, rows(20)), base)
    plain = process(task)
    shorter = TEMPLATE.replace("<|im_start|>' + message['role'] + '\n'", "<|im_start|>'")
    own = replace(task, folder=str(tmp_path / "own"), chat=OwnChat(shorter))
    answer = process(own)
    assert isinstance(answer, PreparedAnswer)
    assert isinstance(plain, PreparedAnswer)
    assert 0 < answer.manifest.train.tokens < plain.manifest.train.tokens
    assert answer.manifest.key != plain.manifest.key
    failing = OwnChat(shorter.replace("message['content']", "'…'"))
    (tmp_path / "refused").mkdir()
    refused = process(replace(task, folder=str(tmp_path / "refused/it"), chat=failing))
    assert isinstance(refused, RefusedAnswer)
