"""Limits of tenants on storage and concurrent use, by plan."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from schemas.account import Lane
from schemas.storage import StorageQuota
from services.gateway.web.domain.token_bucket import PER_MINUTE_MAX

GIB: Final = 1024**3


class PlanLimits(BaseModel):
    """Limits of a tenant."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    storage_bytes_max: int = Field(ge=0)  # size of files and declared size of pending uploads
    files_max: int = Field(ge=0)  # files that are not deleted
    uploads_max: int = Field(ge=0)  # pending uploads
    # previews and comparisons of rows at the same time, of each gateway
    previews_max: int = Field(ge=1)
    streams_max: int = Field(ge=1)  # open streams of events, of each gateway
    # requests of all keys together, of each gateway
    requests_per_minute_max: int = Field(ge=1, le=PER_MINUTE_MAX)
    # commands of requests, which journals keep for ever
    records_per_minute_max: int = Field(ge=1, le=PER_MINUTE_MAX)
    # CPU niceness of processes that check or preview its rows; others of the machine go first
    niceness: int = Field(ge=0, le=19)

    @property
    def quota(self) -> StorageQuota:
        """Limits that the owner of files enforces."""
        return StorageQuota(
            bytes=self.storage_bytes_max, files=self.files_max, uploads=self.uploads_max
        )


PLAN_LIMITS: Final[Mapping[Lane, PlanLimits]] = {
    "premium": PlanLimits(
        storage_bytes_max=1_024 * GIB,
        files_max=10_000,
        uploads_max=100,
        previews_max=8,
        streams_max=400,
        requests_per_minute_max=60_000,
        records_per_minute_max=1_000,
        niceness=0,
    ),
    "standard": PlanLimits(
        storage_bytes_max=128 * GIB,
        files_max=5_000,
        uploads_max=50,
        previews_max=4,
        streams_max=200,
        requests_per_minute_max=6_000,
        records_per_minute_max=200,
        niceness=5,
    ),
    "free": PlanLimits(
        storage_bytes_max=8 * GIB,
        files_max=1_000,
        uploads_max=10,
        previews_max=2,
        streams_max=50,
        requests_per_minute_max=1_200,
        records_per_minute_max=50,
        niceness=15,
    ),
}


def _with_defaults(changes: Any) -> Any:
    """The limits of all plans; `changes` names only those that differ."""
    if not isinstance(changes, Mapping):
        return changes
    whole: dict[str, Any] = {lane: limits.model_dump() for lane, limits in PLAN_LIMITS.items()}
    for lane, limits in changes.items():
        changed = limits.model_dump() if isinstance(limits, PlanLimits) else limits
        known = isinstance(changed, Mapping) and lane in whole
        whole[lane] = {**whole[lane], **changed} if known else changed
    return whole


#: limits by plan; a setting of them names only what differs
PlanLimitsByLane = Annotated[Mapping[Lane, PlanLimits], BeforeValidator(_with_defaults)]
