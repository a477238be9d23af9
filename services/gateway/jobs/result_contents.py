"""An ended job as the files of other tools: TensorBoard's events, an offline run of W&B."""

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from schemas.sealed import Sealed, SealedField
from services.gateway.jobs.domain.event_responses import metrics_response
from services.gateway.jobs.domain.integrations import WANDB, shown_integrations
from services.gateway.jobs.domain.responses import job_response
from services.gateway.views.tables.jobs import JobRow, StepRow
from tunery.mirrors.event_files import EventFile
from tunery.mirrors.wandb_files import packed_run
from tunery.mirrors.wandb_runs import RunRefused, is_installed
from tunery.platform.seal.model_names import with_shown_names
from tunery.platform.seal.sealer import Sealer
from tunery.runtime.telemetry.logs import log_event

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
