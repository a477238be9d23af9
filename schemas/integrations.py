"""Where the figures of a job go besides the API: nouns and messages of `account` and `job`."""

from typing import Literal, TypeAlias

from schemas.envelope import Message, Part
from schemas.sealed import Sealed

IntegrationKind: TypeAlias = Literal["mlflow", "tensorboard", "wandb"]
MirrorStatus: TypeAlias = Literal["failing", "written", "gave_up"]
MirrorCause: TypeAlias = Literal[
    "unreachable", "refused", "address_not_allowed", "no_server", "failed"
]


class Integration(Part):
    """A tool that a job's figures are written for.

    kind: which.
    settings: what the request says of its run, as a JSON object.
    """

    kind: IntegrationKind
    settings: Sealed


class TrackingServer(Part):
    """A tenant's MLflow server.

    url: its address.
    authorization: the header that it is sent, None: none.
    """

    url: Sealed
    authorization: Sealed | None = None


class MirrorReport(Part):
    """How the writing of a job's figures to a server goes.

    kind: for which tool.
    status: `failing`: the first try that failed; it is tried again. The others are ends.
    cause: why it failed, None: it did not.
    http_status: that the server answered last, None: none.
    """

    kind: IntegrationKind
    status: MirrorStatus
    cause: MirrorCause | None = None
    http_status: int | None = None


# --- commands
class SetTrackingServer(Message):
    """Runs of the tenant go to this server from now on.

    server: the server.
    """

    server: TrackingServer


class RemoveTrackingServer(Message):
    """The tenant has no server any more."""


class RecordMirror(Message):
    """The figures of a job are written, or cannot be. It may be sent again.

    job_id: the job.
    report: how it goes.
    """

    job_id: str
    report: MirrorReport


# --- events
class TrackingServerSet(Message):
    """Runs of the tenant go to this server from now on.

    server: the server.
    """

    server: TrackingServer


class TrackingServerRemoved(Message):
    """The tenant has no server any more."""


class MirrorReported(Message):
    """The figures of a job are written, or could not be.

    job_id: the job.
    report: how it goes.
    """

    job_id: str
    report: MirrorReport
