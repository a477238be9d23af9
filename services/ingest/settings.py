"""The settings of ingest."""

from pathlib import Path
from typing import Final

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from schemas.records import build_from
from schemas.units import HOUR_MS, Ms
from tunery.data.screening.screening import Overlaps, Personal, Repeats, ScreeningPolicy, Toxic

GIB: Final = 1024**3


class IngestSettings(BaseSettings):
    """Read from environment variables: TUNERY_INGEST_WORK_DIR, TUNERY_INGEST_CONCURRENCY, …"""

    model_config = SettingsConfigDict(env_prefix="TUNERY_INGEST_", extra="ignore")

    work_dir: Path | None = None  # scratch directory; default: in the data directory
    concurrency: int = Field(default=2, ge=1, le=32)
    tenant_concurrency: int | None = Field(default=None, ge=1, le=32)  # None: all but one
    work_ms_max: Ms = Field(default=2 * HOUR_MS, ge=1_000)
    memory_bytes_max: int = Field(default=4 * GIB, ge=GIB // 2)  # of one worker process
    benchmarks_dir: Path | None = None  # default: where `tunery benchmarks add` stores them
    benchmarks: Overlaps = "flag"  # what happens to rows with items of a benchmark
    near_duplicates: Repeats = "keep"
    personal_data: Personal = "ignore"
    secrets: Personal = "block"
    toxic: Toxic = "warn"
    toxic_percent: int = Field(default=50, ge=1, le=100)
    personal_model: str | None = None  # `presidio` or `module:callable`; recognises names
    toxicity_model: str | None = None  # `module:callable`; rates toxicity

    @property
    def of_tenant_max(self) -> int:
        """Workers that one tenant may have: one is always left for others, if there are two."""
        return self.tenant_concurrency or max(1, self.concurrency - 1)

    @property
    def policy(self) -> ScreeningPolicy:
        return build_from(
            ScreeningPolicy, self, repeats=self.near_duplicates, personal=self.personal_data
        )
