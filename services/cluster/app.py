"""Composition root: the only file of the service that names concrete parts."""

import dataclasses
import datetime
from collections.abc import Sequence

from lightkube.core.exceptions import ConfigError

from schemas.node import DeviceFault
from schemas.training import Device
from services.cluster.adapters.certificates import Authority
from services.cluster.adapters.kubernetes import KubernetesCluster, connect
from services.cluster.adapters.pod_server import HttpsPodServer
from services.cluster.adapters.signed_urls import S3UrlSigner
from services.cluster.domain.manifests import PodTemplate
from services.cluster.effect.lease import ClusterLease, LeaseTools
from services.cluster.effect.sweeping import OrphanWatch, Sweeper
from services.cluster.ports import ClusterRefused, ClusterUnavailable
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
from tunery.runtime.hosts.abstract import Host


class _NoFaults:
    """Devices of a cluster are its operator's care: Kueue counts none that a kubelet took out."""

    def faults(self) -> tuple[DeviceFault, ...]:
        return ()


async def build(runtime: Runtime) -> Sequence[Host]:
    """The node agent of a flavor, and the server that its pods reach. Raises SettingsError."""
    settings, node = load(ClusterSettings), load(TrainerSettings)
    check_keys(node.id, runtime.keys.sender)
    cluster = _cluster(settings, node)
    try:
        quota = await cluster.quota()
        await cluster.look()
    except (ClusterRefused, ClusterUnavailable) as error:
        raise SettingsError(
            f"LocalQueue {settings.queue} and the leases in the namespace {settings.namespace} "
            f"cannot be read: {error}"
        ) from None
    if quota.slots < 1:
        raise SettingsError(
            f"LocalQueue {settings.queue} has no quota of {settings.resource} in the flavor "
            f"{settings.flavor} for a single slot"
        )
    template = PodTemplate(
        agent_url=settings.agent_url,
        confine=runtime.settings.confine,
        **{
            field.name: getattr(settings, field.name)
            for field in dataclasses.fields(PodTemplate)
            if field.name in ClusterSettings.model_fields
        },
    )
    authority = Authority(datetime.datetime.now(datetime.UTC))
    context = authority.server_context(settings.pod_host)
    server = HttpsPodServer(authority, context, settings.listen_host, settings.pod_port)
    signer = S3UrlSigner(s3_settings(runtime.settings))
    reports = Reports(runtime, node.pool)

    def start_lease(grant: Grant, incarnation: str) -> ClusterLease:
        tools = LeaseTools(
            cluster=cluster,
            server=server,
            signer=signer,
            reports=reports,
            clock=runtime.clock,
            template=template,
            flavor=quota.flavor,
            incarnation=incarnation,
            encrypts=runtime.settings.blob_encryption == "on",
            wait_ms_max=settings.wait_ms_max,
            stuck_ms_max=settings.stuck_ms_max,
            poll_ms=settings.poll_ms,
        )
        return ClusterLease(grant, tools)

    device: Device = "cpu" if settings.resource == "cpu" else "cuda"
    hardware = Hardware(device, settings.device_memory_bytes)
    node = node.model_copy(
        update={
            "slots": min(quota.slots, SLOTS_MAX),
            "accelerator": node.accelerator or (settings.flavor if device == "cuda" else ""),
        }
    )
    notices = notices_of(None, "")
    sweeper = Sweeper(cluster, runtime.clock, settings.agent_url)
    agent = NodeAgent(runtime, node, sweeper, hardware, start_lease, notices, _NoFaults())
    orphans = OrphanWatch(cluster, server, runtime.clock, settings.agent_url)
    # Stopped in this order: the server still answers pods that drain.
    return (agent, orphans, server)


def _cluster(settings: ClusterSettings, node: TrainerSettings) -> KubernetesCluster:
    try:
        client = connect(settings.kubeconfig, settings.namespace)
    except (ConfigError, OSError) as error:
        raise SettingsError(f"there is no way to the cluster: {error}") from None
    return KubernetesCluster(
        client,
        node.id,
        settings.queue,
        settings.flavor,
        resource=settings.resource,
        per_slot=settings.cpus_per_slot if settings.resource == "cpu" else 1,
        fresh_s=settings.poll_ms / 2_000,
    )
