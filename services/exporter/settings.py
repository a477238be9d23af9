"""Settings of the exporter."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from schemas.units import DAY_MS, Ms


class ExporterSettings(BaseSettings):
    """Environment: `TUNERY_EXPORTER_EVERY_MS` and so on, as its README says.

    every_ms: how long a row waits for others of its range. rows_max: of one range.
    """

    model_config = SettingsConfigDict(env_prefix="TUNERY_EXPORTER_", extra="ignore")

    every_ms: Ms = Field(default=300_000, ge=100, le=DAY_MS)
    rows_max: int = Field(default=50_000, ge=1, le=1_000_000)
    provider: str = "Tunery"
