"""Files and uploads that expire."""

from typing import Final

from schemas.units import Ms
from services.ingest.domain.state import DatasetsByTenant, TenantDatasets

EXPIRED_MAX: Final = 100  # per tick; the rest expires with the next one


def expires_at(at: Ms, after_ms: Ms | None) -> Ms | None:
    """When something that is created at `at` expires; None for never."""
    return None if after_ms is None else at + after_ms


def due(datasets: TenantDatasets, at: Ms) -> list[str]:
    """The ids that expire now, the oldest first. Files that a job or a model needs are kept."""
    needed = _needed(datasets)
    expired = ((when, name) for name, when in datasets.expires.items() if when <= at)
    return [name for _, name in sorted(expired) if name not in needed][:EXPIRED_MAX]


def next_expiry(state: DatasetsByTenant, tenant: str) -> Ms | None:
    """When the next file or upload of a tenant expires; None: nothing of it does."""
    datasets = state.get(tenant)
    if datasets is None or not datasets.expires:
        return None
    needed = _needed(datasets)
    moments = (when for name, when in datasets.expires.items() if name not in needed)
    return min(moments, default=None)


def _needed(datasets: TenantDatasets) -> set[str]:
    """The files that a job pins, or that the lineage of a model names."""
    holders = (*(pin.terms for pin in datasets.pins.values()), *datasets.kept.values())
    return {name for holder in holders for name in holder.files}
