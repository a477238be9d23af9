"""Projections of five journals into the gateway's read models. Pure."""

from typing import Any

from schemas.envelope import Header
from services.gateway.accounts.projection import project_account
from services.gateway.files.projection import project_dataset
from services.gateway.jobs.pool_projection import project_pool
from services.gateway.jobs.projection import project_job
from services.gateway.models.projection import project_model
from tunery.runtime.verbs import Change


def project(header: Header, event: Any) -> tuple[Change, ...]:
    """Rows that follow from one event of any of the five streams."""
    match header.stream:
        case "account":
            return project_account(header, event)
        case "dataset":
            return project_dataset(header, event)
        case "job":
            return project_job(header, event)
        case "pool":
            return project_pool(header, event)
        case "model":
            return project_model(header, event)
        case other:
            raise ValueError(f"no projection of the stream {other!r}")


def notify(header: Header, event: Any) -> str | None:
    """Those who follow the job hear of it."""
    job_id = getattr(event, "job_id", None)
    return None if header.stream != "job" or job_id is None else f"{header.key}/{job_id}"
