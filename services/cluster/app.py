"""Composition root: the only file of the service that names concrete parts."""

import datetime
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from lightkube.core.exceptions import ConfigError

from schemas.node import DeviceFault
from schemas.streams import PART
from schemas.training import Device
from services.cluster.adapters.certificates import Authority
from services.cluster.adapters.kubernetes import KubernetesCluster, connect
from services.cluster.adapters.pod_server import HttpsPodServer
from services.cluster.adapters.signed_urls import S3UrlSigner
from services.cluster.effect.lease import ClusterLease, LeaseTools
from services.cluster.effect.sweeping import OrphanWatch, Sweeper
from services.cluster.ports import ClusterClient, ClusterRefused, ClusterUnavailable, QueueQuota
from services.cluster.settings import ClusterSettings
from services.trainer.adapters.notices import notices_of
from services.trainer.domain.state import Grant
from services.trainer.effect.agent import NodeAgent
from services.trainer.effect.reports import Reports
from services.trainer.ports import Hardware
from services.trainer.settings import SLOTS_MAX, TrainerSettings, check_keys
from tunery.platform.connections import s3_settings
from tunery.platform.ports import Runtime
from tunery.platform.settings import SettingsError, load
from tunery.runtime.clock import Clock
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.telemetry.logs import log_event

QUOTA_MS: Final = 20_000  # between two reads of the quota
LOG: Final = logging.getLogger(__name__)


class _NoFaults:
    """Watch no devices: Kueue counts none that a kubelet has taken out."""

    def faults(self) -> tuple[DeviceFault, ...]:
        return ()


class QuotaReader:
    """Quota of the agent's queue in one flavor, as it was read last."""

    def __init__(
        self, cluster: ClusterClient, clock: Clock, known: QueueQuota, per_slot: int
    ) -> None:
        self._cluster, self._clock, self.known = cluster, clock, known
        self._per_slot = per_slot
        self._read_ms = clock.monotonic_ms()

    async def slots(self) -> int | None:
        """Read the quota again, but not too often; None: nothing new."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._read_ms < QUOTA_MS:
            return None
        self._read_ms = now_ms
        flavor = self.known.flavor.name
        try:
            self.known = await self._cluster.quota(flavor, self._per_slot)
        except (ClusterRefused, ClusterUnavailable) as error:
            log_event(LOG, logging.WARNING, "cluster.quota_unknown", flavor=flavor, why=error)
            return None
        return min(self.known.slots, SLOTS_MAX)


async def build(runtime: Runtime) -> Sequence[Host]:
    """A node agent for each flavor, and the server that their pods reach. Raises SettingsError."""
    settings, node = load(ClusterSettings), load(TrainerSettings)
    check_keys(node.id, runtime.keys.sender)
    cluster = _cluster(settings, node)
    quotas = await _quotas(cluster, settings, runtime.clock)
    authority = Authority(datetime.datetime.now(datetime.UTC))
    context = authority.server_context(settings.pod_host)
    server = HttpsPodServer(authority, context, settings.listen_host, settings.pod_port)
    tools = {
        "cluster": cluster,
        "server": server,
        "signer": S3UrlSigner(s3_settings(runtime.settings)),
        "reports": Reports(runtime, node.pool),
    }
    agents = [
        _node_agent(runtime, settings, node, name, quota, tools) for name, quota in quotas.items()
    ]
    orphans = OrphanWatch(cluster, server, runtime.clock, settings.agent_url)
    # Stopped in this order: the server still answers pods that drain.
    return (*agents, orphans, server)


async def _quotas(
    cluster: ClusterClient, settings: ClusterSettings, clock: Clock
) -> dict[str, QuotaReader]:
    """Quotas by flavor, each enough for a slot. Raises SettingsError."""
    quotas: dict[str, QuotaReader] = {}
    try:
        for name, flavor in settings.flavors.items():
            cpus = flavor.cpus_per_slot or settings.cpus_per_slot
            per_slot = cpus if settings.resource == "cpu" else 1
            known = await cluster.quota(name, per_slot)
            quotas[name] = QuotaReader(cluster, clock, known, per_slot)
        await cluster.look()
    except (ClusterRefused, ClusterUnavailable) as error:
        raise SettingsError(
            f"LocalQueue {settings.queue} and the leases in the namespace {settings.namespace} "
            f"cannot be read: {error}"
        ) from None
    for name, quota in quotas.items():
        if quota.known.slots < 1:
            raise SettingsError(
                f"LocalQueue {settings.queue} has no quota of {settings.resource} in the flavor "
                f"{name} for a single slot"
            )
    return quotas


def _node_agent(
    runtime: Runtime,
    settings: ClusterSettings,
    node: TrainerSettings,
    name: str,
    quota: QuotaReader,
    shared: Mapping[str, Any],
) -> NodeAgent:
    """The agent of one flavor's node, named `NODE:FLAVOR`. shared: of `LeaseTools`."""
    flavor = settings.flavors[name]
    template = settings.template_of(flavor, runtime.settings.confine)

    def start_lease(grant: Grant, incarnation: str) -> ClusterLease:
        tools = LeaseTools(
            **shared,
            clock=runtime.clock,
            template=template,
            flavor=quota.known.flavor,
            incarnation=incarnation,
            encrypts=runtime.settings.blob_encryption == "on",
            wait_ms_max=settings.wait_ms_max,
            stuck_ms_max=settings.stuck_ms_max,
            poll_ms=settings.poll_ms,
        )
        return ClusterLease(grant, tools)

    device: Device = "cpu" if settings.resource == "cpu" else "cuda"
    of_flavor = node.model_copy(
        update={
            "id": f"{node.id}{PART}{name}",
            "slots": min(quota.known.slots, SLOTS_MAX),
            "accelerator": flavor.accelerator or (name if device == "cuda" else ""),
            "spot": flavor.spot,
        }
    )
    agent = NodeAgent(
        runtime,
        of_flavor,
        Sweeper(shared["cluster"], runtime.clock, settings.agent_url, name),
        Hardware(device, flavor.device_memory_bytes),
        start_lease,
        notices_of(None, ""),
        _NoFaults(),
        quota.slots,
        settings.wait_ms_max,
    )
    agent.name = f"agent {name}"
    return agent


def _cluster(settings: ClusterSettings, node: TrainerSettings) -> KubernetesCluster:
    try:
        client = connect(settings.kubeconfig, settings.namespace)
    except (ConfigError, OSError) as error:
        raise SettingsError(f"there is no way to the cluster: {error}") from None
    return KubernetesCluster(client, node.id, settings.queue, resource=settings.resource)
