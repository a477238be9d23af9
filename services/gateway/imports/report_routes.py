"""`/v1/fine_tuning/imports/{id}/report`: the models of an import beside the old ones, as a page.

Moved models answer the questions of the old ones in batches, and a judge compares both answers in
others. Identifiers of batches follow from the import: a request that comes twice asks nothing
twice.
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
from services.gateway.chat.models import find_model
from services.gateway.chat.spending import refuse_above_budget
from services.gateway.files.domain.bodies import BATCH as BATCH_PURPOSE
from services.gateway.files.domain.preview_tasks import READ_FILES, MovedModels
from services.gateway.files.routes import find_file, known_file, register_stored
from services.gateway.files.storage_routes import checked_limits
from services.gateway.imports.domain.bodies import JudgementRequest
from services.gateway.imports.judgement import OWN_ANSWERS, labelled_questions, move_questions
from services.gateway.imports.move_page import (
    MeasuredMove,
    Moves,
    both_answers,
    new_answers,
    old_answers,
    row_name,
)
from services.gateway.imports.routes import jobs_of, read_plan
from services.gateway.imports.running import terms_of
from services.gateway.jobs.deps import JobDeps, WithJobDeps
from services.gateway.jobs.domain.gate_responses import gate_response
from services.gateway.jobs.domain.statuses import job_status
from services.gateway.jobs.domain.texts import text_of
from services.gateway.views.ports import Cursor
from services.gateway.views.tables.batches import BATCHES, BatchRow
from services.gateway.views.tables.files import FileRow
from services.gateway.views.tables.jobs import JOBS, JobRow
from services.gateway.web.deps import Caller, Principal, require
from services.gateway.web.domain.bodies import Id
from services.gateway.web.domain.errors import ApiError, invalid
from services.gateway.web.domain.html import SECURITY
from services.gateway.web.domain.responses import Unseal
from services.gateway.web.routing import new_router
from services.gateway.web.storage import within
from tunery.comparison.models import ANSWER_TOKENS_MAX
from tunery.graders.pair_questions import LabelledPair
from tunery.platform.seal.model_names import with_shown_names

BATCHES_MAX: Final = 20  # of one import, and of each judge of it
BYTES_MAX: Final = 32 * 1024**2  # of all answers of an import
JOBS_PAGE: Final = 1_000
JOBS_MAX: Final = 5_000  # of a tenant that are looked through, as metadata is sealed
MARK: Final = "openai_job"  # in the metadata of a planned job: the job there
CHAT: Final = "/v1/chat/completions"
ANSWERS: Final = "answers"  # what batches of an import are for
JUDGEMENT: Final = "judgement"
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


class _Asking(NamedTuple):
    """Batches that were begun for a purpose of an import, oldest first."""

    import_id: str
    purpose: Sequence[str]
    batches: Sequence[BatchRow]

    @property
    def is_over(self) -> bool:
        return not self.batches or self.batches[-1].ended_at is not None


class _Files(NamedTuple):
    """Files with what old models, new ones and a judge have answered."""

    old: FileRow
    new: Sequence[FileRow]
    judged: Sequence[FileRow]

    @property
    def all(self) -> list[FileRow]:
        return [self.old, *self.new, *self.judged]


class _Answers(NamedTuple):
    """Content of files: what old models, new ones and a judge have answered."""

    old: bytes
    new: Sequence[bytes]
    judged: Sequence[bytes]


@router.post("/v1/fine_tuning/imports/{import_id}/answers")
async def ask_moved_models(import_id: str, deps: WithJobDeps, caller: Caller) -> BatchResponse:
    """Ask the models of an import what the old ones were asked, in a batch, for the report.

    The batch is billed as any other. The same request again asks only what has no answer yet, and
    returns the newest batch where nothing is left to ask. The key also needs the scope chat.write.
    """
    require(caller, "chat.write")
    moved = await _moved(deps, caller, import_id)
    asking = _Asking(import_id, (ANSWERS,), moved.batches)
    if asking.is_over:
        content = await _questions(deps, caller, moved)
        if content:
            return await _ask(deps, caller, asking, content)
    text = "None of its jobs has a model here: submit them, and wait until one has succeeded."
    return _newest(deps, asking, text)


@router.post("/v1/fine_tuning/imports/{import_id}/judgements")
async def ask_judge(
    import_id: str, body: JudgementRequest, deps: WithJobDeps, caller: Caller
) -> BatchResponse:
    """Have a model compare the old and the new answers of an import, both orders of each, in a
    batch, for the report.

    It compares labelled pairs, too, and counts where it agrees with their labels. The batch is
    billed as any other. The same request again asks only what has no answer yet. The key also needs
    the scope chat.write.
    """
    require(caller, "chat.write")
    served = await find_model(deps, caller, body.judge)
    moved = await _moved(deps, caller, import_id)
    if served.name in {job.model_id for job in moved.jobs.values()}:
        raise invalid(OWN_ANSWERS, "judge")
    purpose = (JUDGEMENT, body.judge)
    asking = _Asking(import_id, purpose, await _batches(deps, caller, import_id, purpose))
    if asking.is_over:
        answers = await _read_answers(deps, caller, moved, asking.batches)
        content = await asyncio.to_thread(_judge_rows, body, moved.jobs, answers)
        if content:
            return await _ask(deps, caller, asking, content)
    text = f"No new model has answered: POST /v1/fine_tuning/imports/{import_id}/answers first."
    return _newest(deps, asking, text)


@router.get("/v1/fine_tuning/imports/{import_id}/report", response_class=HTMLResponse)
async def import_report(
    import_id: str, deps: WithJobDeps, caller: Caller, judge: Id | None = None
) -> HTMLResponse:
    """The models of an import beside the old ones as one page of HTML: "3 of 4 models reach 95 %".

    It has both models' scores, agreement and answers, and the gate's verdict, or why a model is
    not compared. It loads nothing and has no scripts, so that it can be kept and sent as a file.
    With `judge` it has that model's verdict, too; one whose answers it shows to be worse has not
    moved.
    """
    limits = await limits_of(deps, caller.tenant)
    with deps.previews.admit(caller.tenant, limits.previews_max) as folder:
        moved = await _moved(deps, caller, import_id)
        spent = {asked["model"]: asked["spent_micro"] for asked in moved.plan.get("teacher", ())}
        moves = [_move(deps, import_id, job, moved) for job in moved.planned]
        known = Moves(spent_micro=sum(spent.values()), moves=moves, judge=judge)
        (folder / "moves").write_bytes(msgspec.json.encode(known))
        asked = await _batches(deps, caller, import_id, (JUDGEMENT, judge)) if judge else []
        files = await _files(deps, caller, moved, asked)
        for number, file in enumerate(files.all):
            path = folder / str(number)
            await within(deps.blobs.get_file(file.blob, path, sha256=file.sha256), file.bytes)
        old, *new = (str(folder / str(number)) for number in range(len(files.all)))
        divide = len(files.new)
        task = MovedModels(
            moves=str(folder / "moves"), old=old, new=new[:divide], judged=new[divide:]
        )
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
    batches = await _batches(deps, caller, import_id, (ANSWERS,))
    return _Moved(plan, planned, await _jobs_here(deps, caller, planned), old, batches)


async def _batches(
    deps: JobDeps, caller: Principal, import_id: str, purpose: Sequence[str]
) -> list[BatchRow]:
    """Return the batches that were begun for a purpose, oldest first."""
    batches: list[BatchRow] = []
    while len(batches) < BATCHES_MAX:
        batch_id = _batch_id(caller, import_id, purpose, len(batches))
        row = await deps.views.first(BATCHES, {"tenant": caller.tenant, "id": batch_id})
        if row is None:
            break
        batches.append(row)
    return batches


def _batch_id(caller: Principal, import_id: str, purpose: Sequence[str], number: int) -> str:
    return BATCH + derived_id(caller.tenant, import_id, *purpose, str(number))


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


async def _files(
    deps: JobDeps, caller: Principal, moved: _Moved, asked: Sequence[BatchRow] = ()
) -> _Files:
    """Return what was answered. Raises ApiError 400 where it is too much to compare.

    asked: batches of a judge
    """
    new = await _answer_files(deps, caller, moved.batches)
    files = _Files(moved.old, new, await _answer_files(deps, caller, asked))
    size = sum(file.bytes for file in files.all)
    if size > BYTES_MAX:
        text = f"The answers have {size:,} bytes, and {BYTES_MAX:,} are compared. {READ_FILES}"
        raise invalid(text, "import_id")
    return files


async def _questions(deps: JobDeps, caller: Principal, moved: _Moved) -> bytes:
    """Return a row for each question that a model here has not answered. Raises ApiError."""
    answers = await _read_answers(deps, caller, moved)
    models = {name: (row.id, row.model_id) for name, row in moved.jobs.items() if row.model_id}
    shown = with_shown_names(deps.seal, caller.tenant, models)
    return await asyncio.to_thread(_rows, shown, answers)


async def _read_answers(
    deps: JobDeps, caller: Principal, moved: _Moved, asked: Sequence[BatchRow] = ()
) -> _Answers:
    """Return the content of `_files`. Raises ApiError."""
    files = await _files(deps, caller, moved, asked)
    old, *new = [
        await within(deps.blobs.get(file.blob, sha256=file.sha256), file.bytes)
        for file in files.all
    ]
    return _Answers(old, new[: len(files.new)], new[len(files.new) :])


def _judge_rows(body: JudgementRequest, jobs: Mapping[str, JobRow], answers: _Answers) -> bytes:
    """Return rows of what the judge has not compared; none where no new model has answered."""
    before, after = old_answers(answers.old), new_answers(answers.new)
    bodies: dict[str, dict[str, Any]] = {}
    for source_job, job in jobs.items():
        for question, old, new in both_answers(source_job, job.id, before, after):
            bodies |= move_questions(body.judge, row_name(job.id, question), question, old, new)
    if not bodies:
        return b""
    pairs = [LabelledPair(**pair.model_dump()) for pair in body.pairs]
    known = new_answers(answers.judged)
    asked = labelled_questions(body.judge, pairs) | bodies
    return _lines({name: chat for name, chat in asked.items() if name not in known})


def _lines(bodies: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Return rows of a batch, by `custom_id`."""
    rows = (
        {"custom_id": name, "method": "POST", "url": CHAT, "body": body}
        for name, body in bodies.items()
    )
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def _rows(models: Mapping[str, Sequence[str]], answers: _Answers) -> bytes:
    """models: job and model here, by the job there"""
    known, before = new_answers(answers.new), old_answers(answers.old)
    bodies: dict[str, dict[str, Any]] = {}
    for source_job, (job_id, model) in models.items():
        for question, _ in before.get(source_job, ()):
            name = row_name(job_id, question)
            if name in known:
                continue
            body = {"model": model, "messages": question.messages, "temperature": 0}
            body |= {"max_tokens": ANSWER_TOKENS_MAX}
            body |= {"tools": question.tools} if question.tools else {}
            bodies[name] = body
    return _lines(bodies)


def _newest(deps: JobDeps, asking: _Asking, missing: str) -> BatchResponse:
    """Return the newest batch. Raises ApiError 409 where there is none. missing: says why"""
    if not asking.batches:
        raise ApiError(409, errors.ILLEGAL_STATE, missing, "import_id")
    return batch_response(asking.batches[-1], deps.unseal)


async def _ask(deps: JobDeps, caller: Principal, asking: _Asking, content: bytes) -> BatchResponse:
    """Begin the next batch with rows. Raises ApiError."""
    import_id, number = asking.import_id, len(asking.batches)
    if number == BATCHES_MAX:
        text = f"{BATCHES_MAX} batches have asked them, and some questions still have no answer."
        raise ApiError(409, errors.ILLEGAL_STATE, text, "import_id")
    await refuse_above_budget(deps, caller)
    batch_id = _batch_id(caller, import_id, asking.purpose, number)
    file_id = FILE + derived_id(caller.tenant, batch_id, "input")
    file = await find_file(deps, caller, file_id)
    if file is None:
        limits = await checked_limits(deps, caller)
        key = f"t/{caller.tenant}/files/{file_id}"
        stored = await within(deps.blobs.put(key, content), len(content))
        name = f"{batch_id}_input.jsonl"
        terms = await terms_of(deps, caller, limits, name, BATCH_PURPOSE)
        await register_stored(deps, caller, file_id, terms, stored, limits.quota)
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
