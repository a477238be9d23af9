"""Expected contents of object storage once all work has ended: nothing may be missing or extra."""

from collections.abc import Iterator

from schemas.dataset import part_blob
from simulator.artifacts.artifacts_sim import ArtifactsRun

KINDS = ("files", "uploads", "reports", "prepared", "models")


def wrongly_stored(run: ArtifactsRun) -> Iterator[str]:
    """Bytes that are needed and gone, and bytes that nothing needs any more."""
    bodies = run.cluster.storage.bodies
    for tenant in sorted({*run.files.tenants, *run.models.tenants}):
        book, models = run.files.tenants[tenant], run.models.tenants[tenant]
        parts = {
            part_blob(tenant, upload_id, part)
            for upload_id, upload in book.uploads.items()
            for part in upload.parts
        }
        versions = (*models.versions.values(), *models.deleted.values())
        needed = book.needed_blobs() | parts
        needed |= {file.blob for version in versions for file in version.files}
        stored = {key for key in bodies if key.startswith(f"t/{tenant}/")}
        if lost := needed - stored:
            yield f"bytes: {tenant}: {sorted(lost)} are needed and gone"
        if book.erased and models.erased:
            if stored:
                yield f"erasure: {tenant}: {sorted(stored)} are there after all"
            continue
        left = {key for key in stored - needed if key.split("/")[2] in KINDS}
        left = {key for key in left if not _may_stay(run, key)}
        if left:
            yield f"bytes: {tenant}: {sorted(left)} are there, and nothing needs them"


def _may_stay(run: ArtifactsRun, key: str) -> bool:
    """Return whether a stored object may be there although nothing needs it.

    Versions that failed while they were published leave files.
    """
    kind, name = key.split("/")[2:4]
    return kind == "models" and name in run.models.forgotten
