"""Settings of the gateway."""

from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AliasChoices, Field, FilePath, IPvAnyAddress
from pydantic_settings import BaseSettings, SettingsConfigDict

from schemas.account import Lane
from services.gateway.plan_limits import PLAN_LIMITS, PlanLimitsByLane
from services.gateway.web.token_bucket import PER_MINUTE_MAX

Encoding: TypeAlias = Literal["plain", "base64"]
FILE_BYTES_MAX: Final = 512 * 1024 * 1024  # OpenAI's limit for one file
ROWS_MAX: Final[dict[Lane, int]] = {
    "premium": 10_000_000,
    "standard": 1_000_000,
    "free": 100_000,
}
UPLOAD_BYTES_MAX: Final = 10 * 1024 * 1024 * 1024  # in parts; OpenAI takes 8


class GatewaySettings(BaseSettings):
    """Environment `TUNERY_GATEWAY_*`; the bootstrap key is `TUNERY_ADMIN_KEY_SHA256`.

    The bootstrap key has every scope and acts for the tenant `admin_tenant`. `requests_per_minute`:
    of one API key that has no limit of its own. `rows_max`: of one file, by plan. `plan_limits`:
    what a tenant may keep and use at a time, by plan; names only what differs from the defaults.
    `pdf_font`: a TrueType font for letters that invoices as PDF could not show. `result_files`: how
    their content is sent to requests that do not say it; OpenAI sends base64. `bases_dir`: where
    base models are kept that were uploaded; None: in the data directory. `score_url`: an endpoint
    of OpenAI's form, up to `/v1`, whose models give scores for graders; None: there is none.
    `score_key`: sent to it. `score_models`: those that tenants may name; none: all.
    `trusted_proxies`: addresses of proxies in front, as a JSON list; what they say of a client's
    address is believed.
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
    requests_per_minute: int = Field(default=3_000, ge=1, le=PER_MINUTE_MAX)
    file_bytes_max: int = Field(default=FILE_BYTES_MAX, ge=1)
    upload_bytes_max: int = Field(default=UPLOAD_BYTES_MAX, ge=1)
    pdf_font: FilePath | None = None
    result_files: Encoding = "plain"
    bases_dir: Path | None = None
    score_url: str | None = Field(default=None, pattern="^https?://")
    score_key: str | None = Field(default=None, repr=False)
    score_models: tuple[str, ...] = ()
    trusted_proxies: tuple[IPvAnyAddress, ...] = ()
    rows_max: dict[Lane, Annotated[int, Field(ge=1)]] = ROWS_MAX
    plan_limits: PlanLimitsByLane = PLAN_LIMITS
