"""Ports to the cluster, to object storage, and to the server that pods reach."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from services.cluster.domain.link import (
    Fact,
    Orders,
    Pulse,
    SignedUrl,
    Telemetry,
    UrlRequest,
    Welcome,
)
from services.cluster.domain.manifests import Flavor, Json
from services.cluster.domain.stages import LeaseObjects


class ClusterUnavailable(Exception):
    """The API server cannot be reached, or answers with its own error; try again later."""


class ClusterRefused(Exception):
    """The API server refuses a request. The message names the request and the reason."""


@dataclass(frozen=True)
class QueueQuota:
    """Quota of our queue in one flavor."""

    flavor: Flavor
    slots: int  # nominal quota and what it may borrow, in slots


class ClusterClient(Protocol):
    """One namespace of a cluster. Every method raises ClusterUnavailable and ClusterRefused."""

    async def quota(self, flavor: str, per_slot: int) -> QueueQuota:
        """Return the quota of our queue in a flavor. per_slot: how much of it a slot is."""

    async def create(self, jobset: Json, policy: Json, secret: Json) -> None:
        """Create a JobSet, then its NetworkPolicy and its Secret. Repeats are harmless."""

    async def look(self) -> Mapping[str, LeaseObjects]:
        """Return all objects of our leases, by the names of their JobSets."""

    async def delete(self, name: str, *, grace_s: int | None = None) -> None:
        """Delete a JobSet and its pods; repeats are harmless. grace_s: None: as the pods say."""


class UrlSigner(Protocol):
    """Signs URLs of single objects with the agent's account of object storage."""

    async def sign(self, request: UrlRequest) -> SignedUrl:
        """Return a URL with which this one request can be made for some minutes."""


class PodLink(Protocol):
    """The agent's side of a pod's requests; each method may raise PodRefused."""

    def welcome(self) -> Welcome:
        """Return the lease to its pod, once."""

    def pulse(self, pulse: Pulse) -> Orders:
        """Take a proof of life, and return what the pool wants."""

    async def fact(self, fact: Fact) -> None:
        """Send a command to the pool; it is in the log when this returns."""

    async def telemetry(self, record: Telemetry) -> None:
        """Offer a record about the job."""

    async def url(self, request: UrlRequest) -> SignedUrl:
        """Return a URL of an object of the lease."""


class PodServer(Protocol):
    """The server that pods reach."""

    def admit(self, name: str, link: PodLink) -> Mapping[str, str]:
        """Return the files with which the pod of a lease proves its name from now on."""

    def dismiss(self, name: str) -> None:
        """Stop answering the pod of a lease."""

    def answers(self, name: str) -> bool:
        """Return whether the pod of this lease is answered."""
