"""Settings of the gateway."""

from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AliasChoices, Field, FilePath, IPvAnyAddress, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from schemas.account import Lane
from services.gateway.plan_limits import PLAN_LIMITS, PlanLimitsByLane
from services.gateway.views.ports import DaysKept
from services.gateway.web.domain.token_bucket import PER_MINUTE_MAX

Encoding: TypeAlias = Literal["plain", "base64"]
FILE_BYTES_MAX: Final = 512 * 1024 * 1024  # OpenAI's limit for one file
ROWS_MAX: Final[dict[Lane, int]] = {
    "premium": 10_000_000,
    "standard": 1_000_000,
    "free": 100_000,
}
IMPORT_BYTES_MAX: Final = 10 * 1024 * 1024 * 1024
UPLOAD_BYTES_MAX: Final = 10 * 1024 * 1024 * 1024  # in parts; OpenAI takes 8


class GatewaySettings(BaseSettings):
    """Environment `TUNERY_GATEWAY_*`; the bootstrap key is `TUNERY_ADMIN_KEY_SHA256`.

    The bootstrap key has every scope and acts for the tenant `admin_tenant`.
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
    # the notifier's own setting, where both have one environment; only warnings depend on it
    allow_private: bool = Field(
        default=False,
        validation_alias=AliasChoices("TUNERY_NOTIFIER_ALLOW_PRIVATE", "allow_private"),
    )
    # limit of one API key that has no limit of its own
    requests_per_minute: int = Field(default=3_000, ge=1, le=PER_MINUTE_MAX)
    file_bytes_max: int = Field(default=FILE_BYTES_MAX, ge=1)
    upload_bytes_max: int = Field(default=UPLOAD_BYTES_MAX, ge=1)
    # whether it fills the read models itself; False: `python -m services.gateway.fill_views` does
    fills_views: bool = True
    # whether another process than the API's answers questions to models
    answers_apart: bool = True
    answer_tokens: int = Field(default=2_048, ge=1)
    answer_tokens_max: int = Field(default=16_384, ge=1)
    # a TrueType font for letters that invoices as PDF could not show otherwise
    pdf_font: FilePath | None = None
    # how their content is sent to requests that do not say it; OpenAI sends base64
    result_files: Encoding = "plain"
    # where uploaded base models are kept; None: in the data directory
    bases_dir: Path | None = None
    # packages of the console's scripts, as `python -m tunery.local.console` installs them; None:
    # pages of the console do not update by themselves
    console_dir: Path | None = None
    # further addresses of accounts that tenants may import, as a JSON list; the gateway asks them
    import_urls: tuple[str, ...] = ()
    import_bytes_max: int = Field(default=IMPORT_BYTES_MAX, ge=1)  # files of one account
    # an endpoint of OpenAI's form, up to `/v1`, whose models give scores for graders; None: there
    # is none
    score_url: str | None = Field(default=None, pattern="^https?://")
    score_key: SecretStr | None = None  # key that is sent to `score_url`
    score_models: tuple[str, ...] = ()  # models that tenants may name; empty: all
    # addresses of proxies in front, as a JSON list; what they say of a client's address is believed
    trusted_proxies: tuple[IPvAnyAddress, ...] = ()
    # largest number of rows of one file, by plan
    rows_max: dict[Lane, Annotated[int, Field(ge=1)]] = ROWS_MAX
    # what a tenant may keep and use at a time, by plan; names only what differs from the defaults
    plan_limits: PlanLimitsByLane = PLAN_LIMITS
    # days for which rows are kept; bills and what they are made of are kept for ever
    keep_steps_days: int = Field(default=90, ge=7)  # metrics and logs of a job, after its end
    keep_history_days: int = Field(
        default=400, ge=30
    )  # states and messages of a job, after its end
    keep_deliveries_days: int = Field(default=90, ge=7)  # deliveries of webhooks, after their end
    keep_audit_days: int = Field(default=1_096, ge=366)  # entries of the audit log

    @property
    def days_kept(self) -> DaysKept:
        return DaysKept(
            steps=self.keep_steps_days,
            history=self.keep_history_days,
            deliveries=self.keep_deliveries_days,
            audit=self.keep_audit_days,
        )
