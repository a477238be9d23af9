"""What an operator may set for ingest."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from schemas.units import HOUR_MS, Ms


class IngestSettings(BaseSettings):
    """Environment: `TUNERY_INGEST_WORK_DIR`, `TUNERY_INGEST_CONCURRENCY`, …"""

    model_config = SettingsConfigDict(env_prefix="TUNERY_INGEST_", extra="ignore")

    work_dir: Path | None = None  # room for files on their way; else in the data directory
    concurrency: int = Field(default=2, ge=1, le=32)
    work_ms_max: Ms = Field(default=2 * HOUR_MS, ge=1_000)
