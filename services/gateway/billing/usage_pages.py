"""Pages of sums in buckets of time: what a request asks for, and the response."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from fastapi import Depends, Query

from services.gateway.billing.domain.usage import HOUR_S, BucketWidth, buckets_of, page_name
from services.gateway.views.ports import Buckets
from services.gateway.views.table import Table
from services.gateway.web.deps import Deps, WithDeps
from services.gateway.web.domain.bodies import SECONDS_MAX
from services.gateway.web.domain.errors import invalid
from services.gateway.web.domain.responses import Response
from services.gateway.web.pages import ID_CHARACTERS_MAX

SUMS_MAX: Final = 50_000  # of one page: 31 days of 1,600 jobs a day
Seconds = Annotated[int | None, Query(ge=0, le=SECONDS_MAX, description="seconds since the epoch")]
R = TypeVar("R", bound=Response)


class Bucket(Response, Generic[R]):
    object: Literal["bucket"] = "bucket"
    start_time: int
    end_time: int
    results: list[R]


class BucketPage(Response, Generic[R]):
    """One page of buckets. `next_page`: the value of `page` for the following buckets."""

    object: Literal["page"] = "page"
    data: list[Bucket[R]]
    has_more: bool
    next_page: str | None


@dataclass(frozen=True)
class PageOfBuckets:
    """Buckets of one page of a request."""

    buckets: Buckets
    following: int | None  # the hour at which the next page begins

    async def sums(
        self, deps: Deps, table: Table[Any], tenant: str, *, by: Sequence[str], of: Sequence[str]
    ) -> Sequence[Mapping[str, Any]]:
        """Sums of a tenant's records. Raises ApiError 400 for more than SUMS_MAX of them."""
        records = await deps.views.sums(
            table, {"tenant": tenant}, self.buckets, by=by, of=of, limit=SUMS_MAX + 1
        )
        if len(records) > SUMS_MAX:
            raise invalid(f"There are more than {SUMS_MAX:,} sums in it; lower limit.", "limit")
        return records

    def response(
        self, page: type[BucketPage[R]], results: Callable[[int], Iterable[R]]
    ) -> BucketPage[R]:
        """All buckets in their order, each with the results of its hour; they may be none."""
        width = self.buckets.width
        return page(
            data=[
                Bucket(
                    start_time=hour * HOUR_S,
                    end_time=(hour + width) * HOUR_S,
                    results=list(results(hour)),
                )
                for hour in range(self.buckets.first, self.buckets.end, width)
            ],
            has_more=self.following is not None,
            next_page=None if self.following is None else page_name(self.following),
        )


async def _asked(
    deps: WithDeps,
    start_time: Seconds = None,
    end_time: Seconds = None,
    bucket_width: BucketWidth = "1d",
    limit: int | None = None,
    page: Annotated[str | None, Query(max_length=ID_CHARACTERS_MAX)] = None,
) -> PageOfBuckets:
    now = deps.clock.now_ms()
    return PageOfBuckets(*buckets_of(start_time, end_time, bucket_width, limit, page, now))


AskedBuckets = Annotated[PageOfBuckets, Depends(_asked)]
