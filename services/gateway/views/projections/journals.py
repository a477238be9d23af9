"""Projects five journals to the gateway's read models, which can be rebuilt from the log."""

from typing import Any, Final

from schemas.dataset import FileRegistered
from schemas.envelope import Header, Rejected
from services.gateway.views.projections.accounts import project_account
from services.gateway.views.projections.billing import project_bills, project_storage
from services.gateway.views.projections.deployments import project_deployment
from services.gateway.views.projections.erased_rows import delete_erased
from services.gateway.views.projections.files import project_dataset
from services.gateway.views.projections.jobs import project_job, project_result_file
from services.gateway.views.projections.models import project_model
from services.gateway.views.projections.pool import project_pool
from services.gateway.views.projections.refused_senders import project_refused_sender
from services.gateway.views.projections.serving_pools import project_replica, project_serving
from services.gateway.views.table import Table
from services.gateway.views.tables import (
    accounts,
    billing,
    deployments,
    files,
    jobs,
    models,
    serving_pools,
    sweeps,
)
from tunery.runtime.verbs import Change

VERSION: Final = 64  # 64: leases that wait for a cluster; 63: words of messages
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
    ),
    *(models.PERMISSIONS, models.MODELS, models.BASES, models.POLICIES, models.BENCHMARKS),
    deployments.DEPLOYMENTS,
    *(serving_pools.SERVING_POOLS, serving_pools.REPLICAS),
    *(models.MODEL_CHANGES, models.APPROVAL_RULES),
)
#: rows of telemetry are kept by their own reader, and deleted with their tenant here
DDL: Final = "\n".join(table.ddl() for table in (*TABLES, jobs.STEPS, jobs.LINES))


def project(header: Header, event: Any) -> tuple[Change, ...]:
    """Rows that follow from one event of any of the five streams. Raises ValueError for another."""
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
        case other:
            raise ValueError(f"no projection of the stream {other!r}")


def notify(header: Header, event: Any) -> str | None:
    """The notice that wakes the followers of the event's job; None for other events."""
    job_id = getattr(event, "job_id", None)
    return None if header.stream != "job" or job_id is None else f"{header.key}/{job_id}"
