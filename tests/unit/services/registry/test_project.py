"""To-do rows of versions."""

from schemas.lifetime import VersionErased
from schemas.model import VersionDeleted, VersionFailed, VersionPublished
from schemas.reasons import Failure, failing
from services.registry.project import (
    ERASE,
    PUBLISH,
    VERSION_JOBS,
    EraseModelFile,
    EraseVersionWork,
    project,
)
from tests.unit.services.registry.samples import MODEL, adapter, header, submitted
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.verbs import Done, Todo, Upsert

EMPTY = Failure(code="platform_error", reason=failing("adapter_empty"))


async def test_rows_follow_the_version() -> None:
    blobs = MemoryBlobs()
    version = await submitted(blobs, adapter())
    (todo,) = project(header(), version)
    assert isinstance(todo, Todo)
    assert todo.kind == PUBLISH
    file = version.adapter[0]
    published = VersionPublished(
        files=(file,),
        quarantined=False,
        terms=version.terms,
    )
    of_job = {"tenant": "acme", "model_id": MODEL, "job_id": "ftjob-1"}
    assert project(header(), published) == (
        Done(PUBLISH, todo.id),
        Done(ERASE, file.blob),
        Upsert(VERSION_JOBS, of_job),
    )
    failed = VersionFailed(model_id=MODEL, job_id="ftjob-2", failure=EMPTY)
    assert Done(PUBLISH, todo.id) not in project(header(), failed)
    erasing, work = project(header(), VersionDeleted(model_id=MODEL, files=(file,)))
    kept = VersionDeleted(model_id=MODEL, files=(file,), erase_at=1)
    assert project(header(), kept) == (), "it may be restored"
    erased = VersionErased(model_id=MODEL, files=(file,), job_id="ftjob-1")
    assert project(header(), erased) == (erasing, work)
    assert isinstance(erasing, Todo)
    assert isinstance(work, Todo)
    assert work.body == EraseVersionWork(model_id=MODEL)
    assert erasing.body == EraseModelFile(blob=file.blob)
