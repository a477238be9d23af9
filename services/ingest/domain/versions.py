"""Versions of named datasets: each file with a name becomes the next version, numbered for ever."""

from schemas import errors
from schemas.envelope import Rejected
from schemas.reasons import refusing
from schemas.storage import DatasetName
from services.ingest.domain.state import NAMES_MAX, TenantDatasets


def check_name(datasets: TenantDatasets, dataset: DatasetName | None) -> Rejected | None:
    """The rejection of a name that would be one too many; None when it fits."""
    if dataset is None or dataset.key in datasets.versions or len(datasets.versions) < NAMES_MAX:
        return None
    full = refusing("datasets_at_most", limit=NAMES_MAX)
    return Rejected(code=errors.ILLEGAL_STATE, reason=full, param="dataset")


def next_version(datasets: TenantDatasets, dataset: DatasetName | None) -> int | None:
    """The number of the next version of this name; None without a name."""
    return None if dataset is None else datasets.versions.get(dataset.key, 0) + 1
