"""Experiment trackers that get the figures of jobs: nouns and messages of `account` and `job`."""

from typing import Literal, TypeAlias

from schemas.envelope import Message, Part
from schemas.sealed import Sealed

IntegrationKind: TypeAlias = Literal["mlflow", "tensorboard", "wandb"]
MirrorStatus: TypeAlias = Literal["failing", "written", "gave_up"]
MirrorCause: TypeAlias = Literal[
    "unreachable", "refused", "address_not_allowed", "no_server", "failed"
]


class Integration(Part):
    """A tool that a job's figures are written for."""

    kind: IntegrationKind  # the tool
    settings: Sealed  # what the request says of its run, as a JSON object


class TrackingServer(Part):
    """A tenant's MLflow server."""

    url: Sealed  # its address
    authorization: Sealed | None = None  # the header that it is sent, None: none


class MirrorReport(Part):
    """State of writing a job's figures to a server."""

    kind: IntegrationKind  # for which tool
    # `failing`: the first try that failed; it is tried again. The others are ends.
    status: MirrorStatus
    cause: MirrorCause | None = None  # why it failed, None: it did not
    http_status: int | None = None  # last status from the server; None: none


# --- commands
class SetTrackingServer(Message):
    """Runs of the tenant go to this server from now on."""

    server: TrackingServer


class RemoveTrackingServer(Message):
    """The tenant has no server any more."""


class RecordMirror(Message):
    """The figures of a job are written, or cannot be. It may be sent again."""

    job_id: str
    report: MirrorReport  # how it goes


# --- events
class TrackingServerSet(Message):
    """Runs of the tenant go to this server from now on."""

    server: TrackingServer


class TrackingServerRemoved(Message):
    """The tenant has no server any more."""


class MirrorReported(Message):
    """The figures of a job are written, or could not be."""

    job_id: str
    report: MirrorReport  # how it goes
