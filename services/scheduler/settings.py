"""Settings of the scheduler."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from schemas.units import Ms


class SchedulerSettings(BaseSettings):
    """Environment: `TUNERY_SCHEDULER_NODE_TTL_MS`, `…_POLL_MS`, `…_IDLE_MS_MAX`."""

    model_config = SettingsConfigDict(env_prefix="TUNERY_SCHEDULER_", extra="ignore")

    # A node whose heartbeats (one a second) stay away for longer is lost.
    node_ttl_ms: Ms = Field(default=10_000, ge=2_000, le=600_000)
    poll_ms: Ms = Field(default=500, ge=10, le=1_000)
    # A process that lives and says nothing for longer (no step, no evaluation) is stopped.
    idle_ms_max: Ms = Field(default=900_000, ge=1_000, le=86_400_000)
