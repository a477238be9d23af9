"""A cluster in memory, whose objects are what a test says they are."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from schemas.envelope import Message
from services.cluster.domain.link import SignedUrl, UrlRequest
from services.cluster.domain.manifests import Flavor, PodTemplate
from services.cluster.domain.stages import LeaseObjects
from services.cluster.effect.lease import ClusterLease, LeaseTools
from services.cluster.ports import PodLink, QueueQuota
from services.trainer.domain.state import Grant
from services.trainer.ports import Telemetry
from tunery.runtime.clock import SystemClock

Json = dict[str, Any]
FLAVOR = Flavor("h100", {"accelerator": "h100"})
TEMPLATE = PodTemplate(image="tunery:1", queue="team-a", agent_url="https://agent:8443")


@dataclass
class MemoryCluster:
    """Implements `ClusterClient`. A new JobSet has no Workload yet.

    failure: raised by each request instead of an answer
    keeps: a deleted JobSet stays for as long as it is set
    """

    slots: int = 4
    failure: Exception | None = None
    keeps: bool = False
    objects: dict[str, Json] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    deleted: list[tuple[str, int | None]] = field(default_factory=list)
    has_created: asyncio.Event = field(default_factory=asyncio.Event)

    async def quota(self, flavor: str, per_slot: int) -> QueueQuota:
        self._answer()
        return QueueQuota(replace(FLAVOR, name=flavor), self.slots // per_slot)

    async def create(self, jobset: Json, policy: Json, secret: Json) -> None:
        self._answer()
        name = jobset["metadata"]["name"]
        self.created.append(name)
        self.objects[name] = {"jobset": jobset, "workload": None, "pods": []}
        self.has_created.set()

    async def look(self) -> Mapping[str, LeaseObjects]:
        self._answer()
        return {name: msgspec.convert(each, LeaseObjects) for name, each in self.objects.items()}

    async def delete(self, name: str, *, grace_s: int | None = None) -> None:
        self._answer()
        self.deleted.append((name, grace_s))
        if not self.keeps:
            self.objects.pop(name, None)

    def _answer(self) -> None:
        if self.failure is not None:
            raise self.failure


@dataclass
class Reported:
    """Implements `Reporting`: keeps what is said.

    failure: raised by each command instead
    """

    facts: list[Message] = field(default_factory=list)
    records: list[Telemetry] = field(default_factory=list)
    failure: Exception | None = None

    async def fact(self, body: Message, tenant: str = "") -> None:
        if self.failure is not None:
            raise self.failure
        self.facts.append(body)

    async def telemetry(self, record: Telemetry) -> None:
        self.records.append(record)


@dataclass
class Links:
    """Implements `PodServer`."""

    links: dict[str, PodLink] = field(default_factory=dict)

    def admit(self, name: str, link: PodLink) -> Mapping[str, str]:
        self.links[name] = link
        return {"tls.crt": name}

    def dismiss(self, name: str) -> None:
        self.links.pop(name, None)

    def answers(self, name: str) -> bool:
        return name in self.links


class PlainSigner:
    """Implements `UrlSigner` with URLs of no server."""

    async def sign(self, request: UrlRequest) -> SignedUrl:
        return SignedUrl(url=f"https://storage/{request.key}")


def lease_in(cluster: MemoryCluster, grant: Grant, reports: Reported, links: Links) -> ClusterLease:
    tools = LeaseTools(
        cluster=cluster,
        server=links,
        signer=PlainSigner(),
        reports=reports,
        clock=SystemClock(),
        template=TEMPLATE,
        flavor=FLAVOR,
        incarnation="a1",
        encrypts=True,
        wait_ms_max=60_000,
        stuck_ms_max=30_000,
        poll_ms=1_000,
    )
    return ClusterLease(grant, tools)
