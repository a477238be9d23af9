"""Settings of a cluster's agent, for its operator. Those of its nodes are the trainer's."""

import dataclasses
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from schemas.units import DAY_MS, Ms
from services.cluster.domain.manifests import PodTemplate
from services.trainer.settings import LABEL_OR_NONE
from tunery.confinement.confined import ConfineMode

NAME: Final = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"  # of an object


# A label of leases, and the last part of a node's id.
FlavorName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")]
FLAVORS_MAX: Final = 16  # nodes of one agent that a pool takes


class FlavorSettings(BaseModel):
    """Settings of one ResourceFlavor, whose quota is a node of the pool."""

    model_config = ConfigDict(extra="forbid")

    # memory of one accelerator; without accelerators, of a slot
    device_memory_bytes: int = Field(ge=1 << 20)
    # what jobs and prices call its accelerators; empty: by the flavor's name
    accelerator: str = Field(default="", pattern=LABEL_OR_NONE)
    spot: bool = False
    # Where they differ from those of the agent:
    cpus_per_slot: int | None = Field(default=None, ge=1)
    memory_per_slot_bytes: int | None = Field(default=None, ge=1 << 28)
    runtime_class: str | None = None


class ClusterSettings(BaseSettings):
    """Environment: `TUNERY_CLUSTER_NAMESPACE`, `TUNERY_CLUSTER_QUEUE`, …"""

    model_config = SettingsConfigDict(env_prefix="TUNERY_CLUSTER_")

    kubeconfig: Path | None = None  # None: the service account of the agent's own pod
    namespace: str = Field(default="tunery", pattern=NAME)
    queue: str = Field(pattern=NAME)  # LocalQueue of the namespace in which leases wait
    # ResourceFlavors of the queue, each of them a node of the pool, as an object of JSON
    flavors: dict[FlavorName, FlavorSettings] = Field(min_length=1, max_length=FLAVORS_MAX)
    image: str = Field(min_length=1, max_length=500)
    # name of the accelerators in the quota; "cpu": there are none
    resource: str = PodTemplate.resource
    cpus_per_slot: int = Field(default=PodTemplate.cpus_per_slot, ge=1)
    memory_per_slot_bytes: int = Field(default=PodTemplate.memory_per_slot_bytes, ge=1 << 28)
    work_bytes: int = Field(default=PodTemplate.work_bytes, ge=1 << 28)
    grace_s: int = Field(default=PodTemplate.grace_s, ge=1, le=3_600)
    # bases_claim, bases_image: one of them at most
    bases_claim: str = PodTemplate.bases_claim
    bases_image: str = Field(default="", pattern=r"^(\S+@sha256:[0-9a-f]{64})?$")
    bases_dir: str = PodTemplate.bases_dir
    runtime_class: str = PodTemplate.runtime_class
    user_namespaces: bool = PodTemplate.user_namespaces
    priority_prefix: str = PodTemplate.priority_prefix
    listen_host: str = "0.0.0.0"  # noqa: S104  # who has no certificate of a lease gets no answer
    # name or address by which pods reach this agent, for which its certificate is valid
    pod_host: str = Field(min_length=1, max_length=253)
    pod_port: int = Field(default=8443, ge=1, le=65_535)
    # how long Kueue may take to admit a lease before it is given back, by the agent or the pool
    wait_ms_max: Ms = Field(default=1_800_000, ge=1_000, le=DAY_MS)
    stuck_ms_max: Ms = Field(default=300_000, ge=1_000)  # how long an admitted pod may not start
    poll_ms: Ms = Field(default=2_000, ge=100, le=60_000)

    @model_validator(mode="after")
    def _bases_come_from_one_place(self) -> Self:
        if self.bases_claim and self.bases_image:
            raise ValueError("base models are of bases_claim or of bases_image: unset one of them")
        return self

    @property
    def agent_url(self) -> str:
        """Base URL by which pods reach this agent."""
        host = f"[{self.pod_host}]" if ":" in self.pod_host else self.pod_host
        return f"https://{host}:{self.pod_port}"

    def template_of(self, flavor: FlavorSettings, confine: ConfineMode) -> PodTemplate:
        """Return what pods of a flavor share. confine: how trainings are confined in them."""
        shared = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(PodTemplate)
            if field.name in type(self).model_fields
        }
        own = {
            name: value
            for name in ("cpus_per_slot", "memory_per_slot_bytes", "runtime_class")
            if (value := getattr(flavor, name)) is not None
        }
        return PodTemplate(agent_url=self.agent_url, confine=confine, **{**shared, **own})
