"""The filter of a list of jobs: status, suffix, metadata, tags, a search. Texts are sealed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.gateway.jobs.domain.statuses import JobStatus, job_status
from services.gateway.jobs.domain.texts import has_all, text_of
from services.gateway.views.tables.jobs import JobRow
from services.gateway.web.domain.responses import Unseal


@dataclass(frozen=True)
class JobFilter:
    """Conditions for a job to be listed."""

    # pairs that its metadata must contain; None: it has no metadata at all
    metadata: Mapping[str, str] | None
    # status, suffix: None: any
    status: JobStatus | None = None
    suffix: str | None = None
    # values that its other texts must have, by the names of the texts
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    search: str = ""  # words of which each occurs in its id, models, suffix, tags or metadata

    @property
    def is_empty(self) -> bool:
        return self == JobFilter({})

    def matches(self, row: JobRow, unseal: Unseal) -> bool:
        """Return whether the job satisfies all conditions."""
        if self.status not in (None, job_status(row.wanted, row.phase, row.outcome)):
            return False
        if self.suffix is not None and text_of(row.spec, "suffix", unseal) != self.suffix:
            return False
        if not has_all(row.spec, self.words, unseal):
            return False
        if self.search.split() and not self._is_found(row, unseal):
            return False
        if self.metadata == {}:
            return True
        if self.metadata is None:
            return row.spec.metadata is None
        pairs = text_of(row.spec, "metadata", unseal) or {}
        return self.metadata.items() <= pairs.items()

    def _is_found(self, row: JobRow, unseal: Unseal) -> bool:
        texts = [row.id, row.spec.base.base_id, row.spec.model_id]
        texts.append(text_of(row.spec, "suffix", unseal) or "")
        texts += text_of(row.spec, "tags", unseal) or ()
        for name, value in (text_of(row.spec, "metadata", unseal) or {}).items():
            texts += (name, str(value))
        text = "\n".join(texts).casefold()
        return all(word in text for word in self.search.casefold().split())
