"""Messages of the stream `model` about how long a version stays."""

from schemas.envelope import Message
from schemas.training import BlobFile


# --- commands
class RestoreVersion(Message):
    """A version that was deleted comes back."""

    model_id: str  # the version


class KeepVersion(Message):
    """A job begins with a version, which stays until the job has ended (reaction of job)."""

    job_id: str
    model_id: str  # the version, or a checkpoint, which is not kept here


class ReleaseVersion(Message):
    """The job has ended (reaction of job)."""

    job_id: str


# --- events
class VersionErased(Message):
    """A version that was deleted cannot be restored any more."""

    model_id: str  # the version
    files: tuple[BlobFile, ...]  # what was published, to be removed from storage
    job_id: str  # the job that made it


class VersionKept(Message):
    """A job begins with the version."""

    job_id: str
    model_id: str  # the version


class VersionReleased(Message):
    """The job that began with the version has ended."""

    job_id: str
    model_id: str  # the version
