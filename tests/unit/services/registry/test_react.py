"""Commands that follow from events of `model`."""

from schemas.dataset import KeepDataset, ReleaseDataset
from schemas.job import RecordBase, RecordRegistered
from schemas.lifetime import VersionErased
from schemas.model import BaseRefused, VersionDeleted, VersionFailed, VersionPublished
from schemas.reasons import Failure, failing
from services.registry.react import react_model
from tests.unit.services.registry.samples import MODEL, adapter, header, submitted
from tunery.runtime.blobs.memory import MemoryBlobs

FAILED = Failure(code="base_changed", reason=failing("base_changed"))


async def test_a_published_version_is_registered_with_its_job() -> None:
    version = await submitted(MemoryBlobs(), adapter())
    published = VersionPublished(
        files=version.adapter,
        quarantined=False,
        terms=version.terms,
    )
    (send,) = react_model(header(), published)
    assert send.body == RecordRegistered(job_id="ftjob-1", model_id=MODEL)


async def test_files_of_a_lineage_are_kept_before_its_job_can_end() -> None:
    version = await submitted(MemoryBlobs(), adapter())
    (keep,) = react_model(header(), version)
    job_id = version.terms.lineage.job_id
    assert (keep.stream, keep.body) == ("dataset", KeepDataset(job_id=job_id, model_id=MODEL))
    failed = VersionFailed(model_id=MODEL, job_id=job_id, failure=FAILED)
    registered, release = react_model(header(), failed)
    assert (release.stream, release.body) == ("dataset", ReleaseDataset(job_id=job_id))
    assert registered.stream == "job"
    assert registered.body == RecordRegistered(job_id=job_id, model_id=MODEL, failure=FAILED)
    (deleted,) = react_model(header(), VersionDeleted(model_id=MODEL, job_id=job_id))
    assert deleted.body == ReleaseDataset(job_id=job_id)
    assert react_model(header(), VersionDeleted(model_id=MODEL)) == ()
    kept = VersionDeleted(model_id=MODEL, job_id=job_id, erase_at=1)
    assert react_model(header(), kept) == (), "it may be restored"
    erased = VersionErased(model_id=MODEL, files=(), job_id=job_id)
    assert react_model(header(), erased) == (deleted,)


def test_a_refused_base_reaches_its_job() -> None:
    refused = BaseRefused(job_id="j", failure=FAILED)
    (send,) = react_model(header(), refused)
    assert send.body == RecordBase(job_id="j", base=None, failure=FAILED)
