"""Settings of the watcher."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from schemas.units import HOUR_MS, Ms


class WatcherSettings(BaseSettings):
    """Environment: `TUNERY_WATCHER_WINDOW_MS` and so on, as its README says."""

    model_config = SettingsConfigDict(env_prefix="TUNERY_WATCHER_", extra="ignore")

    window_ms: Ms = Field(default=60_000, ge=100, le=HOUR_MS)  # length of a window
    # silence that is unusual in any case
    stuck_ms: Ms = Field(default=300_000, ge=1_000, le=24 * HOUR_MS)
    # number of jobs that one process watches at most
    jobs_max: int = Field(default=10_000, ge=1, le=1_000_000)
