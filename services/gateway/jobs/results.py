"""An ended job's metrics as files of the tenant: OpenAI's `result_files`."""

import asyncio
import csv
import hashlib
import io
import logging
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from schemas.dataset import FileContent, RegisterFile
from schemas.job import JobEnded
from schemas.sealed import Sealed, SealedField
from schemas.storage import FileTerms
from services.gateway.jobs.domain.event_responses import metrics_response
from services.gateway.jobs.domain.integrations import WANDB, shown_integrations
from services.gateway.jobs.domain.responses import job_response
from services.gateway.views.ports import Cursor, Views
from services.gateway.views.tables.files import FILES
from services.gateway.views.tables.jobs import JOBS, STEPS, JobRow, StepRow
from services.gateway.views.todos import RESULTS, result_file_id
from tunery.mirrors.event_files import EventFile
from tunery.mirrors.wandb_files import packed_run
from tunery.mirrors.wandb_runs import RunRefused, is_installed
from tunery.platform.seal.model_names import with_shown_names
from tunery.platform.seal.sealer import Sealer
from tunery.runtime.blobs.abstract import Blobs, blob_key
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.verbs import Effect, Send

LOG: Final = logging.getLogger("tunery.gateway")


class ResultContent(NamedTuple):
    """A result of a job: the name of its file, and its bytes."""

    name: str
    data: bytes


def event_file(row: JobRow, steps: Sequence[StepRow], seal: Sealer) -> ResultContent:
    """The file that TensorBoard shows as a run. It depends on the job alone."""
    job = _shown_job(row, seal)
    with tempfile.TemporaryDirectory(prefix="tunery-tensorboard-") as folder:
        file = EventFile(Path(folder))
        file.begin(job)
        for step in steps:
            file.add(metrics_response(step).model_dump(mode="json"))
        file.end(job)
        file.close()
        written = Path(file.destination)
        return ResultContent(f"{row.id}.{written.name}", written.read_bytes())


def offline_run(row: JobRow, steps: Sequence[StepRow], seal: Sealer) -> ResultContent | None:
    """The archive of a run that `wandb sync` uploads; None where W&B's package is not installed,
    or refuses the run: an event of the job names the fix.
    """
    unseal = _unsealing(seal)
    integrations = {shown["type"]: shown for shown in shown_integrations(row.spec, unseal)}
    settings: dict[str, Any] | None = integrations.get(WANDB, {}).get(WANDB)
    if settings is None or not is_installed():
        return None
    job = _shown_job(row, seal)
    figures = [metrics_response(step).model_dump(mode="json") for step in steps]
    try:
        return ResultContent(f"wandb-{row.id}.zip", packed_run(job, figures, settings))
    except RunRefused as error:
        log_event(LOG, logging.WARNING, "result.wandb_refused", error, job_id=row.id)
        return None


def _shown_job(row: JobRow, seal: Sealer) -> dict[str, Any]:
    """The job as its tenant sees it."""
    job = job_response(row, _unsealing(seal)).model_dump(mode="json")
    return with_shown_names(seal, row.tenant, job)


def _unsealing(seal: Sealer) -> Any:
    def unseal(sealed: Sealed | None, field: SealedField) -> str | None:
        return None if sealed is None else seal.open(sealed, field)

    return unseal


NAME: Final = "step_metrics.csv"
FindContent: TypeAlias = Callable[[JobEnded, str], Awaitable[ResultContent | None]]
Packed: TypeAlias = Callable[[JobRow, Sequence[StepRow], Sealer], ResultContent | None]
PAGE: Final = 1_000
# header → column of `steps`; OpenAI's names, blank where a step has no such figure
COLUMNS: Final = {
    "step": "step",
    "train_loss": "loss",
    "train_accuracy": "accuracy",
    "valid_loss": "valid_loss",
    "valid_mean_token_accuracy": "valid_accuracy",
    "learning_rate": "learning_rate",
    "tokens": "tokens",
    "tokens_per_second": "tokens_per_s",
    "peak_memory_bytes": "memory_bytes",
    "train_reward_accuracy": "reward_accuracy",
    "train_reward_margin": "reward_margin",
    "train_reward_mean": "reward",
    "train_reward_std": "reward_std",
    "valid_reward_accuracy": "valid_reward_accuracy",
}


def results(views: Views, blobs: Blobs, seal: Sealer) -> Effect[JobEnded]:
    """The effect that writes a job's result file; none for a job without steps or with a file."""

    async def content(job: JobEnded, tenant: str) -> ResultContent | None:
        steps = await _steps(views, tenant, job.job_id)
        return ResultContent(NAME, table(steps)) if steps else None

    return _writing(RESULTS, content, views, blobs, seal)


def mirror_files(views: Views, blobs: Blobs, seal: Sealer) -> tuple[Effect[JobEnded], ...]:
    """The effects that write a job as a file of TensorBoard, or as an offline run of W&B."""

    def writing(kind: str, packed: Packed) -> Effect[JobEnded]:
        async def content(job: JobEnded, tenant: str) -> ResultContent | None:
            row = await views.first(JOBS, {"tenant": tenant, "id": job.job_id})
            if row is None:
                return None  # its tenant was erased
            steps = await _steps(views, tenant, job.job_id)
            return await asyncio.to_thread(packed, row, steps, seal)

        return _writing(kind, content, views, blobs, seal)

    return (writing("tensorboard", event_file), writing("wandb", offline_run))


def _writing(
    kind: str, content: FindContent, views: Views, blobs: Blobs, seal: Sealer
) -> Effect[JobEnded]:
    """The effect that stores one file of an ended job, once, and registers it."""

    async def run(job: JobEnded, tenant: str, _: int = 1) -> Send | None:
        file_id = result_file_id(tenant, job.job_id, kind)
        if await views.first(FILES, {"tenant": tenant, "id": file_id}) is not None:
            return None
        result = await content(job, tenant)
        if result is None:
            return None
        # below a folder of the file's own: equal results of another job do not go with this one
        sha256 = hashlib.sha256(result.data).hexdigest()
        key = blob_key(tenant, f"{RESULTS}/{file_id}", sha256, Path(result.name).suffix)
        stored = await blobs.put(key, result.data)
        file = RegisterFile(
            file_id=file_id,
            terms=FileTerms(
                purpose="fine-tune-results", name=seal.seal(tenant, result.name, "name")
            ),
            content=FileContent(bytes=stored.bytes, sha256=stored.sha256, blob=stored.key),
            job_id=job.job_id,
        )
        return Send("dataset", tenant, tenant, file)

    return Effect(kind=kind, body=JobEnded, run=run, unrecorded=True)


def table(steps: Sequence[StepRow]) -> bytes:
    """A CSV file with a header and one line for each step."""
    columns = COLUMNS
    if any(step.variant is not None for step in steps):
        columns = {**COLUMNS, "variant": "variant"}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for step in steps:
        writer.writerow([column and getattr(step, column) for column in columns.values()])
    return out.getvalue().encode()


async def _steps(views: Views, tenant: str, job_id: str) -> list[StepRow]:
    """Rows of steps in their order; a step that a resumed attempt repeated is there once."""
    where = {"tenant": tenant, "job_id": job_id}
    steps: list[StepRow] = []
    after = None
    while True:
        rows = await views.page(STEPS, where, limit=PAGE, after=after, descending=False)
        steps += rows
        if len(rows) < PAGE:
            return sorted(steps, key=lambda row: row.step)
        after = Cursor(rows[-1].id, rows[-1].id)
