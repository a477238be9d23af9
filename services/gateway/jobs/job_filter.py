"""Which jobs a list shows: by status, suffix and metadata. Two of these are sealed on the log."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from services.gateway.jobs.statuses import JobStatus, job_status
from services.gateway.jobs.tables import JobRow
from services.gateway.web.responses import Unseal


@dataclass(frozen=True)
class JobFilter:
    """What a job must have to be listed.

    metadata: pairs among its own; None: it has no metadata at all. status, suffix: None: any.
    """

    metadata: Mapping[str, str] | None
    status: JobStatus | None = None
    suffix: str | None = None

    @property
    def is_empty(self) -> bool:
        return self.metadata == {} and self.status is None and self.suffix is None

    def matches(self, row: JobRow, unseal: Unseal) -> bool:
        """Whether the job is to be listed."""
        if self.status not in (None, job_status(row.wanted, row.phase, row.outcome)):
            return False
        if self.suffix is not None and unseal(row.suffix, "suffix") != self.suffix:
            return False
        if self.metadata == {}:
            return True
        text = unseal(row.metadata, "metadata")
        if self.metadata is None:
            return text is None
        try:
            pairs = msgspec.json.decode(text or "{}", type=dict[str, str])
        except msgspec.DecodeError:
            return False
        return self.metadata.items() <= pairs.items()
