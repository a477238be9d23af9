"""The registry's to-do list: versions to publish, and files of deleted ones to erase.

`version_jobs` has the jobs that trained or judged each version, `job_files` what their processes
left in object storage, `ended_jobs` those of which no more files come.
"""

from typing import Any, Final

from schemas.envelope import Header, Message
from schemas.erasure import JobsErased, ModelsErased
from schemas.job import AttemptEnded, CheckpointRecorded, JobEnded, JobSubmitted
from schemas.lifetime import VersionErased
from schemas.model import (
    VersionDeleted,
    VersionFailed,
    VersionGated,
    VersionPublished,
    VersionSubmitted,
)
from schemas.training import BlobFile, files_of
from tunery.runtime.verbs import Change, Delete, Done, Todo, Upsert

PUBLISH: Final = "publish"
ERASE: Final = "erase"
ERASE_WORK: Final = "erase_work"
VERSION_JOBS: Final = "version_jobs"
JOB_FILES: Final = "job_files"
ENDED_JOBS: Final = "ended_jobs"
DDL: Final = """
CREATE TABLE IF NOT EXISTS version_jobs (
  tenant text, model_id text, job_id text,
  PRIMARY KEY (tenant, model_id, job_id)
);
CREATE TABLE IF NOT EXISTS job_files (
  tenant text, job_id text, blob text,
  PRIMARY KEY (tenant, job_id, blob)
);
CREATE TABLE IF NOT EXISTS ended_jobs (
  tenant text, job_id text,
  PRIMARY KEY (tenant, job_id)
);
"""


class EraseModelFile(Message):
    """Erase one file of a deleted version."""

    blob: str


class EraseVersionWork(Message):
    """Erase what the jobs of a deleted version left: checkpoints, adapters, scores."""

    model_id: str


def project(header: Header, event: Any) -> tuple[Change, ...]:
    """To-do rows that an event opens or closes, and rows about files of jobs."""
    match event:
        case VersionSubmitted():
            row = todo_id(header.key, event.terms.lineage.job_id)
            return (Todo(PUBLISH, row, header.key, header.tenant, event),)
        case VersionPublished():
            job_id = event.terms.lineage.job_id
            # the same bytes may be wanted again: then they must not be erased
            kept = (Done(ERASE, file.blob) for file in event.files)
            done = Done(PUBLISH, todo_id(header.key, job_id))
            return (done, *kept, _job_of_version(header, event.terms.model_id, job_id))
        case VersionGated():
            return (_job_of_version(header, event.model_id, event.run.job_id),)
        case VersionFailed():
            return (Done(PUBLISH, todo_id(header.key, event.job_id)),)
        case VersionDeleted(erase_at=None) | VersionErased():
            files = (
                Todo(ERASE, file.blob, header.key, header.tenant, EraseModelFile(blob=file.blob))
                for file in event.files
            )
            work = EraseVersionWork(model_id=event.model_id)
            row = todo_id(header.key, event.model_id)
            return (*files, Todo(ERASE_WORK, row, header.key, header.tenant, work))
        case JobSubmitted() | CheckpointRecorded() | AttemptEnded():
            return tuple(_file_of_job(header, event.job_id, file) for file in _left(event))
        case JobEnded():
            return (Upsert(ENDED_JOBS, {"tenant": header.key, "job_id": event.job_id}, {}),)
        case JobsErased():
            return tuple(Delete(table, {"tenant": header.key}) for table in (JOB_FILES, ENDED_JOBS))
        case ModelsErased():
            return (Delete(VERSION_JOBS, {"tenant": header.key}),)
        case _:
            return ()


def _left(event: JobSubmitted | CheckpointRecorded | AttemptEnded) -> tuple[BlobFile, ...]:
    """Files that are in object storage from this event on, and of this job alone."""
    match event:
        case CheckpointRecorded():
            return event.checkpoint.files
        case AttemptEnded():
            return () if event.end.result is None else files_of(event.end.result)
        case JobSubmitted():
            evaluation, start = event.spec.evaluation, event.spec.start
            if evaluation is None or start is None or not evaluation.imported:
                return ()
            return start.files


def _file_of_job(header: Header, job_id: str, file: BlobFile) -> Change:
    return Upsert(JOB_FILES, {"tenant": header.key, "job_id": job_id, "blob": file.blob}, {})


def _job_of_version(header: Header, model_id: str, job_id: str) -> Change:
    key = {"tenant": header.key, "model_id": model_id, "job_id": job_id}
    return Upsert(VERSION_JOBS, key, {})


def todo_id(tenant: str, name: str) -> str:
    """Id of a row: by job, as the refusal of a second job must not end the row of the first; or by
    version.
    """
    return f"{tenant}/{name}"
