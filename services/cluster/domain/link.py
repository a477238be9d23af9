"""Messages between the pod of a lease and its agent, and checks of those of a pod.

The pod asks, over HTTPS with a certificate of its lease; the agent answers. All bodies are JSON.
"""

import re
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from schemas.lease_keys import RequestLeaseKeys
from schemas.pool import ConfirmFreed, ReportCheckpoint, ReportExit, ReportStarted
from schemas.telemetry import LogLine, Progress, Step
from schemas.training import BlobFile, files_of
from schemas.units import Ms
from services.trainer.domain.state import Grant, TargetState

# Paths of the agent's server; all are of POST.
HELLO, BEAT, FACT = "/v1/hello", "/v1/beat", "/v1/fact"
TELEMETRY, URL = "/v1/telemetry", "/v1/url"
BODY_BYTES_MAX: Final = 4 << 20
# Kinds of objects that an attempt leaves, below the folder of its tenant.
WRITTEN: Final = ("checkpoints", "adapters", "scores")
SHARED: Final = "benchmarks/"  # which every attempt reads
OBJECT_BYTES_MAX: Final = 5 << 30  # of S3, in one request
SHA256: Final = re.compile("[0-9a-f]{64}")

Fact: TypeAlias = RequestLeaseKeys | ReportStarted | ReportCheckpoint | ReportExit | ConfirmFreed
Telemetry: TypeAlias = Step | LogLine | Progress


class Welcome(Struct, frozen=True, kw_only=True):
    """Answer to the first request of a pod."""

    grant: Grant
    incarnation: str  # incarnation of the agent; part of each report
    encrypts: bool  # whether new blobs are encrypted
    threads: int  # number of processor threads that the pod may use


class Pulse(Struct, frozen=True, kw_only=True):
    """Proof of life that a pod sends each second, with the figures of `RunningLease`."""

    idle_ms: Ms = 0
    elapsed_ms: Ms = 0
    prepared_bytes: int = 0


class Orders(Struct, frozen=True, kw_only=True):
    """Answer to a pulse."""

    target: TargetState = "run"  # state that the pool wants
    sealed_keys: str = ""  # keys of the lease, sealed to the pod; empty: they have not come


class UrlRequest(Struct, frozen=True, kw_only=True):
    """Request for a URL of one object."""

    method: Literal["GET", "PUT"]
    key: str
    # size, sha256: size and hash of the bytes to put; the storage refuses any others
    size: int = 0
    sha256: str = ""


class SignedUrl(Struct, frozen=True, kw_only=True):
    """A URL that is valid for minutes, and the headers that go with it."""

    url: str
    headers: dict[str, str] = {}


class PodRefused(Exception):
    """A pod requests or reports something of another lease."""


def check_fact(grant: Grant, incarnation: str, fact: Fact) -> None:
    """Raise PodRefused for a command that is not of this lease."""
    lease = fact.lease if isinstance(fact, RequestLeaseKeys) else fact.token
    own = grant.token.lease if isinstance(fact, RequestLeaseKeys) else grant.token
    if lease != own or fact.incarnation != incarnation:
        raise PodRefused(f"{type(fact).__name__} is of another lease")
    if isinstance(fact, ConfirmFreed) and fact.node_id != grant.node_id:
        raise PodRefused("ConfirmFreed is of another node")
    if isinstance(fact, ReportCheckpoint):
        _check_files(grant, fact.checkpoint.files)
    if isinstance(fact, ReportExit) and fact.result is not None:
        _check_files(grant, files_of(fact.result))


def _check_files(grant: Grant, files: Iterable[BlobFile]) -> None:
    """Raise PodRefused for a file that is not of this attempt, or whose name leaves its folder.

    Other attempts, nodes and people write these files under these names.
    """
    for file in files:
        if not (_is_path(file.name) and _is_path(file.blob)) or file.bytes < 0:
            raise PodRefused(f"{file.name[:100]!r} is no file of an attempt")
        if not file.blob.startswith(_written(grant)):
            raise PodRefused("the file is not of this lease's attempt")


def _is_path(path: str) -> bool:
    return not any(part in ("", ".", "..") for part in path.split("/"))


def _written(grant: Grant) -> tuple[str, ...]:
    """Prefixes of the objects that the attempt writes."""
    return tuple(f"t/{grant.tenant}/{kind}/{grant.job_id}/{grant.attempt}/" for kind in WRITTEN)


def check_telemetry(grant: Grant, record: Telemetry) -> None:
    """Raise PodRefused for a record that is not of this attempt."""
    of_grant = (grant.tenant, grant.job_id, grant.attempt)
    if (record.tenant, record.job_id, record.attempt) != of_grant:
        raise PodRefused(f"{type(record).__name__} is of another attempt")


def check_url(grant: Grant, request: UrlRequest) -> None:
    """Raise PodRefused for an object that the attempt may not read, or not write.

    It reads what is its tenant's, and writes below its own attempt alone.
    """
    if not _is_path(request.key):
        raise PodRefused(f"{request.key[:100]!r} is no key")
    if request.method == "GET":
        if not request.key.startswith((f"t/{grant.tenant}/", SHARED)):
            raise PodRefused("the object is not of this lease's tenant")
        return
    if not request.key.startswith(_written(grant)):
        raise PodRefused("the object is not of this lease's attempt")
    if not SHA256.fullmatch(request.sha256) or not 0 <= request.size <= OBJECT_BYTES_MAX:
        raise PodRefused("an object is stored with its size and its SHA-256")
