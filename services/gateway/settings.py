"""What an operator may set for the gateway."""

from importlib.resources import files
from pathlib import Path
from typing import Final

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

FILE_BYTES_MAX: Final = 512 * 1024 * 1024  # OpenAI's limit for one file


class GatewaySettings(BaseSettings):
    """Environment `TUNERY_GATEWAY_*`; the bootstrap key is `TUNERY_ADMIN_KEY_SHA256`.

    The bootstrap key has every scope and acts for the tenant `admin_tenant`. `prices_dir`: the
    folder of price books, the same one that invoices are made from.
    """

    model_config = SettingsConfigDict(env_prefix="TUNERY_GATEWAY_", extra="ignore")

    host: str = "127.0.0.1"
    port: int = Field(default=8_080, ge=0, le=65_535)
    admin_key_sha256: str | None = Field(
        default=None,
        pattern="^[0-9a-f]{64}$",
        validation_alias=AliasChoices("TUNERY_ADMIN_KEY_SHA256", "admin_key_sha256"),
        repr=False,
    )
    admin_tenant: str = "local"
    file_bytes_max: int = Field(default=FILE_BYTES_MAX, ge=1)
    prices_dir: Path = Field(
        default=Path(str(files("services") / "billing" / "prices")),
        validation_alias=AliasChoices(
            "TUNERY_GATEWAY_PRICES_DIR", "TUNERY_BILLING_PRICES_DIR", "prices_dir"
        ),
    )
