"""`/v1/fine_tuning/imports/{id}/report`: the models of an import beside the old ones, as a page.

Moved models answer the questions of the old ones as batches, whose identifiers follow from the
import: a request that comes twice asks nothing twice.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from starlette.responses import HTMLResponse

from schemas import errors
from schemas.ids import BATCH, FILE, derived_id
from services.gateway.accounts.deps import limits_of
from services.gateway.batches.domain.responses import BatchResponse, batch_response, status_of
from services.gateway.batches.routes import start_batch
from services.gateway.chat.spending import refuse_above_budget
from services.gateway.files.domain.bodies import BATCH as BATCH_PURPOSE
from services.gateway.files.domain.preview_tasks import READ_FILES, MovedModels
from services.gateway.files.routes import find_file, known_file
from services.gateway.files.storage_routes import checked_limits
from services.gateway.imports.move_page import (
    MeasuredMove,
    Moves,
    new_answers,
    old_answers,
    row_name,
)
from services.gateway.imports.routes import jobs_of, read_plan
from services.gateway.imports.running import register_stored
from services.gateway.jobs.deps import JobDeps, WithJobDeps
from services.gateway.jobs.domain.gate_responses import gate_response
from services.gateway.jobs.domain.statuses import job_status
from services.gateway.jobs.domain.texts import text_of
from services.gateway.views.ports import Cursor
from services.gateway.views.tables.batches import BATCHES, BatchRow
from services.gateway.views.tables.files import FileRow
from services.gateway.views.tables.jobs import JOBS, JobRow
from services.gateway.web.deps import Caller, Principal, require
from services.gateway.web.domain.errors import ApiError, invalid
from services.gateway.web.domain.html import SECURITY
from services.gateway.web.domain.responses import Unseal
from services.gateway.web.routing import new_router
from services.gateway.web.storage import within
from tunery.comparison.models import ANSWER_TOKENS_MAX
from tunery.platform.seal.model_names import with_shown_names

BATCHES_MAX: Final = 20  # of one import
BYTES_MAX: Final = 32 * 1024**2  # of all answers of an import
JOBS_PAGE: Final = 1_000
JOBS_MAX: Final = 5_000  # of a tenant that are looked through, as metadata is sealed
MARK: Final = "openai_job"  # in the metadata of a planned job: the job there
CHAT: Final = "/v1/chat/completions"
router = new_router("imports")


class _Moved(NamedTuple):
    """An import whose old models have answered.

    planned: jobs with a model that moves; jobs: their newest ones here, by the job there
    """

    plan: Mapping[str, Any]
    planned: list[dict[str, Any]]
    jobs: Mapping[str, JobRow]
    old: FileRow
    batches: list[BatchRow]


@router.post("/v1/fine_tuning/imports/{import_id}/answers")
async def ask_moved_models(import_id: str, deps: WithJobDeps, caller: Caller) -> BatchResponse:
    """Ask the models of an import what the old ones were asked, in a batch, for the report.

    The batch is billed as any other. The same request again asks only what has no answer yet, and
    returns the newest batch where nothing is left to ask. The key also needs the scope chat.write.
    """
    require(caller, "chat.write")
    moved = await _moved(deps, caller, import_id)
    newest = moved.batches[-1] if moved.batches else None
    if newest is None or newest.ended_at is not None:
        content = await _questions(deps, caller, moved)
        if content:
            return await _ask(deps, caller, import_id, len(moved.batches), content)
    if newest is None:
        text = "None of its jobs has a model here: submit them, and wait until one has succeeded."
        raise ApiError(409, errors.ILLEGAL_STATE, text, "import_id")
    return batch_response(newest, deps.unseal)


@router.get("/v1/fine_tuning/imports/{import_id}/report", response_class=HTMLResponse)
async def import_report(import_id: str, deps: WithJobDeps, caller: Caller) -> HTMLResponse:
    """The models of an import beside the old ones as one page of HTML: "3 of 4 models reach 95 %".

    It has both models' scores, agreement and answers, and the gate's verdict, or why a model is
    not compared. It loads nothing and has no scripts, so that it can be kept and sent as a file.
    """
    limits = await limits_of(deps, caller.tenant)
    with deps.previews.admit(caller.tenant, limits.previews_max) as folder:
        moved = await _moved(deps, caller, import_id)
        spent = {asked["model"]: asked["spent_micro"] for asked in moved.plan.get("teacher", ())}
        moves = [_move(deps, import_id, job, moved) for job in moved.planned]
        known = Moves(spent_micro=sum(spent.values()), moves=moves)
        (folder / "moves").write_bytes(msgspec.json.encode(known))
        files = [moved.old, *await _answer_files(deps, caller, moved.batches)]
        _check_size(files)
        for number, file in enumerate(files):
            path = folder / str(number)
            await within(deps.blobs.get_file(file.blob, path, sha256=file.sha256), file.bytes)
        old, *new = (str(folder / str(number)) for number in range(len(files)))
        task = MovedModels(moves=str(folder / "moves"), old=old, new=new)
        page = await deps.previews.ask(task, caller.tenant, limits.niceness)
    return HTMLResponse(page["html"], headers=SECURITY)


async def _moved(deps: JobDeps, caller: Principal, import_id: str) -> _Moved:
    """Raises ApiError 404, 409."""
    result, plan = await read_plan(deps, caller, import_id)
    if result.teacher_file_id is None:
        text = (
            "No old model has answered, so there is nothing to compare with: `teacher` of its plan "
            "says why. Import the account again with a `teacher_budget_micro`."
        )
        raise ApiError(409, errors.ILLEGAL_STATE, text, "import_id")
    old = await known_file(deps, caller, result.teacher_file_id)
    planned = [job for job in jobs_of(plan) if job["status"] == "succeeded" and job["tuned_model"]]
    batches: list[BatchRow] = []
    while len(batches) < BATCHES_MAX:
        key = {"tenant": caller.tenant, "id": _batch_id(caller, import_id, len(batches))}
        if (row := await deps.views.first(BATCHES, key)) is None:
            break
        batches.append(row)
    return _Moved(plan, planned, await _jobs_here(deps, caller, planned), old, batches)


def _batch_id(caller: Principal, import_id: str, number: int) -> str:
    return BATCH + derived_id(caller.tenant, import_id, "answers", str(number))


async def _jobs_here(
    deps: JobDeps, caller: Principal, planned: Sequence[Mapping[str, Any]]
) -> dict[str, JobRow]:
    """Return the newest job here of each job there, best one with a model.

    It is known by its training file, which is the import's own, and by its metadata: so one that
    was submitted by hand counts, too.
    """
    jobs: dict[str, JobRow] = {}
    after: Cursor | None = None
    for _ in range(JOBS_MAX // JOBS_PAGE):
        rows = await deps.views.page(JOBS, caller.rows, limit=JOBS_PAGE, after=after)
        for row in rows:
            for source_job in _sources(row, planned, deps.unseal):
                known = jobs.get(source_job)
                if known is None or (known.model_id is None and row.model_id is not None):
                    jobs[source_job] = row
        if len(rows) < JOBS_PAGE:
            break
        after = Cursor(rows[-1].sequence, rows[-1].id)
    return jobs


def _sources(row: JobRow, planned: Sequence[Mapping[str, Any]], unseal: Unseal) -> list[str]:
    """Return the jobs there that a job here was planned from; mostly none."""
    file = row.spec.training_file
    same = [job for job in planned if job["request"] and job["request"]["training_file"] == file]
    metadata = (text_of(row.spec, "metadata", unseal) or {}) if same else {}
    return [job["job_id"] for job in same if _mark(metadata) == _mark(job["request"]["metadata"])]


def _mark(metadata: Mapping[str, str]) -> Any:
    """Return what a planned job is known by: one with full metadata has no MARK, but all of it."""
    return metadata.get(MARK, metadata)


async def _answer_files(
    deps: JobDeps, caller: Principal, batches: Sequence[BatchRow]
) -> list[FileRow]:
    """Return the files with answers that the tenant has not deleted."""
    names = [row.result.output_file_id for row in batches if row.result is not None]
    files = [await find_file(deps, caller, name) for name in names if name is not None]
    return [file for file in files if file is not None]


def _check_size(files: Sequence[FileRow]) -> None:
    """Raises ApiError 400 where there is too much to compare."""
    size = sum(file.bytes for file in files)
    if size > BYTES_MAX:
        text = f"The answers have {size:,} bytes, and {BYTES_MAX:,} are compared. {READ_FILES}"
        raise invalid(text, "import_id")


async def _questions(deps: JobDeps, caller: Principal, moved: _Moved) -> bytes:
    """Return a row for each question that a model here has not answered. Raises ApiError."""
    files = [moved.old, *await _answer_files(deps, caller, moved.batches)]
    _check_size(files)
    old, *new = [
        await within(deps.blobs.get(file.blob, sha256=file.sha256), file.bytes) for file in files
    ]
    models = {name: (row.id, row.model_id) for name, row in moved.jobs.items() if row.model_id}
    shown = with_shown_names(deps.seal, caller.tenant, models)
    return await asyncio.to_thread(_rows, shown, old, new)


def _rows(models: Mapping[str, Sequence[str]], old: bytes, new: Sequence[bytes]) -> bytes:
    """models: job and model here, by the job there"""
    known, before = new_answers(new), old_answers(old)
    rows = []
    for source_job, (job_id, model) in models.items():
        for question, _ in before.get(source_job, ()):
            name = row_name(job_id, question)
            if name in known:
                continue
            body = {"model": model, "messages": question.messages, "temperature": 0}
            body |= {"max_tokens": ANSWER_TOKENS_MAX}
            body |= {"tools": question.tools} if question.tools else {}
            rows.append({"custom_id": name, "method": "POST", "url": CHAT, "body": body})
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


async def _ask(
    deps: JobDeps, caller: Principal, import_id: str, number: int, content: bytes
) -> BatchResponse:
    """Begin the batch of this number with rows. Raises ApiError."""
    if number == BATCHES_MAX:
        text = f"{BATCHES_MAX} batches have asked them, and some questions still have no answer."
        raise ApiError(409, errors.ILLEGAL_STATE, text, "import_id")
    await refuse_above_budget(deps, caller)
    batch_id = _batch_id(caller, import_id, number)
    file_id = FILE + derived_id(caller.tenant, batch_id, "input")
    file = await find_file(deps, caller, file_id)
    if file is None:
        limits = await checked_limits(deps, caller)
        key = f"t/{caller.tenant}/files/{file_id}"
        stored = await within(deps.blobs.put(key, content), len(content))
        name = f"{batch_id}_input.jsonl"
        await register_stored(deps, caller, limits, file_id, name, BATCH_PURPOSE, stored)
        file = await known_file(deps, caller, file_id)
    metadata = {"import": import_id}
    return await start_batch(deps, caller, file, CHAT, batch_id, metadata=metadata)


def _move(deps: JobDeps, import_id: str, planned: Mapping[str, Any], moved: _Moved) -> MeasuredMove:
    """Say what became of a planned job, and why its models may not be comparable."""
    job, request = moved.jobs.get(planned["job_id"]), planned["request"]
    gate = None
    if job is not None and job.gate is not None:
        gate = gate_response(job.gate, job.settled.hyper.adaptation)
    if job is not None:
        measures = text_of(job.spec, "measures", deps.unseal)
    else:
        measures = ((request or {}).get("eval") or {}).get("measures")
    return MeasuredMove(
        job_id=planned["job_id"],
        old_model=planned["tuned_model"],
        new_job=None if job is None else job.id,
        new_model=None if job is None else job.model_id,
        questions_are=planned["questions_are"],
        gate=None if gate is None else gate.verdict,
        gate_reasons=[] if gate is None else list(gate.reasons),
        reason=_reason(import_id, planned, job, moved),
        measures=measures or [],
    )


def _reason(import_id: str, planned: Mapping[str, Any], job: JobRow | None, moved: _Moved) -> str:
    """Say why a model is not compared, if it is not."""
    if job is None:
        return "it was not submitted" if planned["request"] else "; ".join(planned["reasons"])
    if job.model_id is None:
        return f"its job {job.id} is {job_status(job.wanted, job.phase, job.outcome)}"
    teacher = [each for each in moved.plan["teacher"] if each["job_id"] == planned["job_id"]]
    if not any(each["answered"] for each in teacher):
        why = "".join(f": {each['reason']}" for each in teacher if each["reason"])
        return f"the old model has answered nothing{why}"
    ask = f"it has answered nothing: ask it with POST /v1/fine_tuning/imports/{import_id}/answers"
    if not moved.batches:
        return ask
    newest = moved.batches[-1]
    return f"{ask} ({newest.id} is {status_of(newest)})"
