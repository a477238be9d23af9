"""Reads what the use and the amounts of jobs may be grouped by."""

from collections.abc import Iterable, Mapping
from typing import Final

from services.gateway.billing.domain.usage import JobFacts
from services.gateway.jobs.domain.texts import text_of
from services.gateway.views.tables.jobs import JOBS
from services.gateway.web.deps import Deps

JOBS_MAX: Final = 1_000  # of one query


async def job_facts(deps: Deps, tenant: str, ids: Iterable[str]) -> Mapping[str, JobFacts]:
    """Base model, API key, suffix and metadata of each of the tenant's jobs."""
    wanted, facts = sorted(ids), dict[str, JobFacts]()
    for start in range(0, len(wanted), JOBS_MAX):
        some = tuple(wanted[start : start + JOBS_MAX])
        rows = await deps.views.page(JOBS, {"tenant": tenant, "id": some}, limit=JOBS_MAX)
        facts |= {
            row.id: JobFacts(
                model=row.spec.base.base_id,
                key=deps.unseal(row.submitted_by, "actor"),
                suffix=text_of(row.spec, "suffix", deps.unseal),
                metadata=text_of(row.spec, "metadata", deps.unseal) or {},
            )
            for row in rows
        }
    return facts
