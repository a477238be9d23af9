"""Projects six journals to the gateway's read models, which can be rebuilt from the log."""

from typing import Any, Final

from schemas import errors
from schemas.dataset import FileRegistered
from schemas.envelope import Header, Rejected
from schemas.erasure import FilesErased, JobsErased, ModelsErased, TenantErased
from schemas.units import Ms
from services.gateway.views.projections.accounts import project_account
from services.gateway.views.projections.billing import project_bills, project_storage
from services.gateway.views.projections.files import project_dataset
from services.gateway.views.projections.jobs import project_job, project_result_file
from services.gateway.views.projections.models import project_deployment, project_model
from services.gateway.views.projections.pool import project_pool
from services.gateway.views.projections.serving_pools import project_replica, project_serving
from services.gateway.views.projections.sessions import project_session
from services.gateway.views.table import Table
from services.gateway.views.tables import (
    accounts,
    batches,
    billing,
    deployments,
    files,
    imports,
    jobs,
    models,
    serving_pools,
    sessions,
    sweeps,
)
from services.gateway.views.todos import REFUSED_SENDER, SenderRefused
from tunery.runtime.verbs import Change, Todo

# Rows of a tenant go with the event of their own journal, so that the order of the journals does
# not matter when the read models are made anew. What bills are made of stays (months, adjustments,
# credit notes, use, answers, tokens of sessions, storage), and so does the audit log.
JOB_ROWS: Final[tuple[Table[Any], ...]] = (
    *(jobs.JOBS, jobs.JOB_HISTORY, jobs.JOB_EVENTS, jobs.CHECKPOINTS, jobs.STEPS, jobs.LINES),
    *(sweeps.SWEEPS, sweeps.SKIPPED_RUNS, accounts.BUDGETS),
    *(serving_pools.SERVING_POOLS, serving_pools.REPLICAS),
    *(sessions.SESSIONS, sessions.SESSION_COMMANDS, sessions.SAVED_WEIGHTS),
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
        *(batches.BATCHES, batches.BATCH_PARTS, imports.IMPORTS),
        *(jobs.STEPS, jobs.LINES),  # reported by the last attempts
    ),
}

WINDOW_MS: Final[Ms] = 60_000  # equal refusals of a partition are one row

TABLES: Final[tuple[Table[Any], ...]] = (
    *(
        accounts.PRICES,
        accounts.TENANTS,
        accounts.ERASED_PARTS,
        accounts.LIMITS,
        accounts.KEYS,
        accounts.BUDGETS,
        accounts.ENDPOINTS,
        accounts.DELIVERIES,
        accounts.TRACKING_SERVERS,
    ),
    *(files.FILES, files.DATASETS, files.UPLOADS, files.UPLOAD_PARTS),
    *(jobs.JOBS, jobs.JOB_HISTORY, jobs.JOB_EVENTS, jobs.CHECKPOINTS, jobs.USAGE),
    *(jobs.NODES, jobs.INVITATIONS, jobs.PLACEMENTS, jobs.SEATS, jobs.ATTEMPT_TIMES),
    jobs.ATTEMPT_NODES,
    *(sweeps.SWEEPS, sweeps.SKIPPED_RUNS),
    *(
        billing.MONTHS,
        billing.ADJUSTMENTS,
        billing.CREDIT_NOTES,
        billing.BILLING_TERMS,
        billing.PREPAID,
        billing.STORED,
        billing.HELD_BOOKS,
        billing.ANSWER_USES,
        billing.SESSION_USES,
    ),
    *(models.PERMISSIONS, models.MODELS, models.BASES, models.POLICIES, models.BENCHMARKS),
    deployments.DEPLOYMENTS,
    *(serving_pools.SERVING_POOLS, serving_pools.REPLICAS),
    *(models.MODEL_CHANGES, models.APPROVAL_RULES),
    *(sessions.SESSIONS, sessions.SESSION_COMMANDS, sessions.SAVED_WEIGHTS),
    *(batches.BATCHES, batches.BATCH_PARTS, imports.IMPORTS),
)
#: rows of telemetry are kept by their own reader, and deleted with their tenant here
DDL: Final = "\n".join(table.ddl() for table in (*TABLES, jobs.STEPS, jobs.LINES))


def project(header: Header, event: Any) -> tuple[Change, ...]:
    """Rows that follow from one event of any of the six streams. Raises ValueError for another."""
    if isinstance(event, Rejected):
        return project_refused_sender(header, event)
    return (*_project(header, event), *delete_erased(header, event))


def _project(header: Header, event: Any) -> tuple[Change, ...]:
    match header.stream:
        case "account":
            return (*project_account(header, event), *project_bills(header, event))
        case "dataset" if isinstance(event, FileRegistered):
            return (
                *project_dataset(header, event),
                *project_result_file(header, event),
                *project_storage(header, event),
            )
        case "dataset":
            return (*project_dataset(header, event), *project_storage(header, event))
        case "job":
            return (*project_job(header, event), *project_serving(header, event))
        case "pool":
            return (*project_pool(header, event), *project_replica(header, event))
        case "model":
            return (
                *project_model(header, event),
                *project_deployment(header, event),
                *project_storage(header, event),
            )
        case "session":
            return (*project_session(header, event), *project_storage(header, event))
        case other:
            raise ValueError(f"no projection of the stream {other!r}")


def notify(header: Header, event: Any) -> str | None:
    """The notice that wakes the followers of the event's job; None for other events."""
    job_id = getattr(event, "job_id", None)
    return None if header.stream != "job" or job_id is None else f"{header.key}/{job_id}"


def project_refused_sender(header: Header, event: Rejected) -> tuple[Todo, ...]:
    """The row to do for a refusal because of the sender, or by an operator; none for others."""
    reason, entry = event.reason, f"{header.partition}/{header.offset}"
    if event.code == errors.OPERATOR_REFUSED:
        ordered = SenderRefused(
            stream=header.stream,
            at=header.at,
            sender="",
            command="",
            reason=reason.code,
            operator=str(reason.params.get("operator", "")),
            entry=entry,
        )
        return (
            Todo(REFUSED_SENDER, f"{header.stream}/{entry}", header.key, header.tenant, ordered),
        )
    if event.code != errors.SENDER_REFUSED:
        return ()
    refused = SenderRefused(
        stream=header.stream,
        at=header.at,
        sender=str(reason.params.get("sender", "")),
        command=str(reason.params.get("command", "")),
        reason=reason.code,
    )
    where = (header.stream, str(header.partition), str(header.at // WINDOW_MS))
    row = "/".join((*where, refused.sender, refused.command, refused.reason))
    return (Todo(REFUSED_SENDER, row, header.key, header.tenant, refused),)


def delete_erased(header: Header, event: Any) -> tuple[Change, ...]:
    """The deletes that follow from one event of an erasure; none of any other event."""
    return tuple(table.delete({"tenant": header.key}) for table in ROWS.get(type(event), ()))
