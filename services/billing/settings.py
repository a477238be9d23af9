"""Settings of billing."""

from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict


class BillingSettings(BaseSettings):
    """Environment: `TUNERY_BILLING_PRICES_DIR`, a folder of price books that replaces ours;
    `TUNERY_BILLING_SELLER`, name, address and tax number of the seller, as on invoices.
    """

    model_config = SettingsConfigDict(env_prefix="TUNERY_BILLING_", extra="ignore")

    prices_dir: Path | None = None
    seller: str = ""
