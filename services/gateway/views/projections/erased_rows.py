"""Which rows of a tenant go with its erasure: those of each journal with that journal's own event.

So the order of the journals does not matter when the read models are made anew. What bills are made
of stays (months, adjustments, credit notes, use, answers, storage), and so does the audit log.
"""

from typing import Any, Final

from schemas.envelope import Header
from schemas.erasure import FilesErased, JobsErased, ModelsErased, TenantErased
from services.gateway.views.table import Table
from services.gateway.views.tables import (
    accounts,
    deployments,
    files,
    jobs,
    models,
    serving_pools,
    sweeps,
)
from tunery.runtime.verbs import Change

JOB_ROWS: Final[tuple[Table[Any], ...]] = (
    *(jobs.JOBS, jobs.JOB_HISTORY, jobs.JOB_EVENTS, jobs.CHECKPOINTS, jobs.STEPS, jobs.LINES),
    *(sweeps.SWEEPS, sweeps.SKIPPED_RUNS, accounts.BUDGETS),
    *(serving_pools.SERVING_POOLS, serving_pools.REPLICAS),
)
ROWS: Final[dict[type[Any], tuple[Table[Any], ...]]] = {
    JobsErased: JOB_ROWS,
    FilesErased: (
        *(files.FILES, files.DATASETS, files.UPLOADS, files.UPLOAD_PARTS),
        *(jobs.JOBS, jobs.JOB_HISTORY),  # a file of results names its job
    ),
    ModelsErased: (
        *(models.MODELS, models.MODEL_CHANGES, models.POLICIES, models.APPROVAL_RULES),
        *(models.PERMISSIONS, deployments.DEPLOYMENTS),
    ),
    TenantErased: (
        *(accounts.KEYS, accounts.ENDPOINTS, accounts.DELIVERIES, accounts.TRACKING_SERVERS),
        *(jobs.STEPS, jobs.LINES),  # reported by the last attempts
    ),
}


def delete_erased(header: Header, event: Any) -> tuple[Change, ...]:
    """The deletes that follow from one event of an erasure; none of any other event."""
    return tuple(table.delete({"tenant": header.key}) for table in ROWS.get(type(event), ()))
