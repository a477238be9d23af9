"""Messages of the stream `model` about how long a version stays."""

from schemas.envelope import Message
from schemas.training import BlobFile


# --- commands
class RestoreVersion(Message):
    """A version that was deleted comes back.

    model_id: the version.
    """

    model_id: str


class KeepVersion(Message):
    """A job begins with a version, which stays until the job has ended (reaction of job).

    job_id: the job.
    model_id: the version, or a checkpoint, which is not kept here.
    """

    job_id: str
    model_id: str


class ReleaseVersion(Message):
    """The job has ended (reaction of job).

    job_id: the job.
    """

    job_id: str


# --- events
class VersionErased(Message):
    """A version that was deleted cannot be restored any more.

    model_id: the version.
    files: what was published, to be removed from storage.
    job_id: the job that made it.
    """

    model_id: str
    files: tuple[BlobFile, ...]
    job_id: str


class VersionKept(Message):
    """A job begins with the version.

    job_id: the job.
    model_id: the version.
    """

    job_id: str
    model_id: str


class VersionReleased(Message):
    """The job that began with the version has ended.

    job_id: the job.
    model_id: the version.
    """

    job_id: str
    model_id: str
