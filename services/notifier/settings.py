"""Settings of the notifier."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from schemas.units import Ms


class NotifierSettings(BaseSettings):
    """Environment: `TUNERY_NOTIFIER_ALLOW_PRIVATE=1` (one machine: http, private addresses), …"""

    model_config = SettingsConfigDict(env_prefix="TUNERY_NOTIFIER_", extra="ignore")

    allow_private: bool = False
    timeout_ms: Ms = Field(default=15_000, ge=1_000, le=30_000)
    concurrency: int = Field(default=8, ge=1, le=64)
    smtp_url: SecretStr | None = Field(
        default=None, description="smtps://user:password@host; without it no e-mail is sent"
    )
    smtp_url_file: Path | None = Field(
        default=None, description="a file with that address, where it has a password"
    )
    smtp_sender: str = "tunery@localhost"
    smtp_domains: str = Field(
        default="", description="domains that e-mail may go to, with commas between; *: any"
    )
