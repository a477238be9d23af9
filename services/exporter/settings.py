"""Settings of the exporter."""

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from schemas.units import DAY_MS, Ms


class ExporterSettings(BaseSettings):
    """Environment: `TUNERY_EXPORTER_EVERY_MS` and so on, as its README says."""

    model_config = SettingsConfigDict(env_prefix="TUNERY_EXPORTER_", extra="ignore")

    # how long a row waits for others of its range
    every_ms: Ms = Field(default=300_000, ge=100, le=DAY_MS)
    rows_max: int = Field(default=50_000, ge=1, le=1_000_000)  # largest number of rows of one range
    provider: str = "Tunery"
    # the version of FOCUS that files have; each version has folders of its own
    focus: Literal["1.2", "1.4", "both"] = "1.2"
