"""Quotas: how much a tenant may keep at a time. The decider counts, so requests cannot race."""

from typing import Final

from schemas import errors
from schemas.envelope import Reason, Rejected
from schemas.reasons import refusing
from schemas.storage import NOT_COUNTED, StorageQuota
from services.ingest.domain.state import FILES_MAX, FileState, TenantDatasets

UPLOADS_MAX: Final = 100  # of one tenant at a time, regardless of its plan


def counted_bytes(file: FileState | None) -> int:
    """The bytes of a file that count for its tenant; 0 where there is no file."""
    return 0 if file is None or file.purpose == NOT_COUNTED else file.bytes


def used_bytes(datasets: TenantDatasets) -> int:
    """Bytes of the files, and of what pending uploads declare."""
    declared = (
        upload.terms.bytes
        for upload in datasets.uploads.values()
        if upload.terms.file.purpose != NOT_COUNTED
    )
    return datasets.stored_bytes + sum(declared)


def check_file(datasets: TenantDatasets, quota: StorageQuota | None) -> Rejected | None:
    """The rejection of one more file; None when it fits."""
    limit = FILES_MAX if quota is None else min(FILES_MAX, quota.files)
    if len(datasets.files) < limit:
        return None
    return _rejected(refusing("files_at_most", limit=limit))


def check_upload(datasets: TenantDatasets, quota: StorageQuota | None) -> Rejected | None:
    """The rejection of one more upload; None when it fits."""
    limit = UPLOADS_MAX if quota is None else min(UPLOADS_MAX, quota.uploads)
    if len(datasets.uploads) < limit:
        return None
    return _rejected(refusing("uploads_at_most", limit=limit))


def check_bytes(
    datasets: TenantDatasets, quota: StorageQuota | None, size_bytes: int
) -> Rejected | None:
    """The rejection of further bytes; None when they fit."""
    if quota is None or (used := used_bytes(datasets)) + size_bytes <= quota.bytes:
        return None
    reason = refusing("bytes_at_most", limit=quota.bytes, used_bytes=used, size_bytes=size_bytes)
    return _rejected(reason)


def _rejected(reason: Reason) -> Rejected:
    return Rejected(code=errors.QUOTA_EXCEEDED, reason=reason)
