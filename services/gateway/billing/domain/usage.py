"""Use of GPU time in buckets: which are asked for, what it is grouped by, and sums. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from schemas.units import HOUR_MS, GpuMs, Ms, Tokens
from services.gateway.views.ports import Buckets
from services.gateway.web.domain.errors import ApiError, invalid

BucketWidth: TypeAlias = Literal["1h", "1d"]
HOURS_OF: Final[Mapping[BucketWidth, int]] = {"1h": 1, "1d": 24}
LIMIT_OF: Final[Mapping[BucketWidth, int]] = {"1h": 24, "1d": 7}  # as OpenAI's organization usage
LIMIT_MAX_OF: Final[Mapping[BucketWidth, int]] = {"1h": 168, "1d": 31}
GROUPS: Final = ("day", "job", "model", "key", "suffix", "lane", "role", "device", "spot")
FACTS: Final = frozenset({"model", "key", "suffix"})  # of the job, not of its use
METADATA: Final = re.compile(r"metadata\[(.{1,64})\]")
NAMES: Final = re.compile(r"[^,\[]+(?:\[[^\]]*\])?")  # a comma in brackets is part of a name
SPOT: Final = "spot"
BY: Final = ("job_id", "lane", "kind", "role", "device", "accelerator", "spot")
PAGE_PREFIX: Final = "page_"
HOUR_S: Final = HOUR_MS // 1_000


class Group(NamedTuple):
    """Common key of the usage in one result. None: the request does not group by that field."""

    job: str | None = None
    model: str | None = None
    key: str | None = None
    suffix: str | None = None
    metadata: tuple[str, str] | None = None  # a name and the job's value, empty where it has none
    lane: str | None = None
    role: str | None = None
    device: str | None = None  # the accelerator where its nodes say it, else the kind of device
    spot: str | None = None


class UsageSum(NamedTuple):
    """`billable_gpu_ms` before credits; `tokens` after them."""

    used_gpu_ms: GpuMs = 0
    billable_gpu_ms: GpuMs = 0
    credited_gpu_ms: GpuMs = 0
    tokens: Tokens = 0


@dataclass(frozen=True)
class JobFacts:
    """Attributes of a job by which its usage may be grouped. `key`: id of the API key that
    submitted it.
    """

    model: str | None = None
    key: str | None = None
    suffix: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    def group(self, grouped: frozenset[str], job_id: str) -> Group:
        """Return the group's fields that the job determines; the others come from its usage."""
        names = [match[1] for name in grouped if (match := METADATA.fullmatch(name))]
        return Group(
            job=job_id if "job" in grouped else None,
            model=self.model if "model" in grouped else None,
            key=self.key if "key" in grouped else None,
            suffix=(self.suffix or "") if "suffix" in grouped else None,
            metadata=(names[0], self.metadata.get(names[0], "")) if names else None,
        )


def groups_of(
    values: Sequence[str], allowed: Sequence[str] = GROUPS, *, with_metadata: bool = True
) -> frozenset[str]:
    """The names in `group_by`, repeated or with commas. Raises ApiError 400."""
    names = {name.strip() for value in values for name in NAMES.findall(value)}
    for name in names:
        if name not in allowed and not (with_metadata and METADATA.fullmatch(name)):
            choices = ", ".join((*allowed, "metadata[NAME]") if with_metadata else allowed)
            raise invalid(f"{name!r} is none of {choices}.", "group_by")
    if len(names - set(allowed)) > 1:
        raise invalid("Group by one name of metadata at a time.", "group_by")
    return frozenset(names)


def check_width(grouped: frozenset[str], buckets: Buckets) -> None:
    """Raises ApiError 400 for days in narrower buckets."""
    if "day" in grouped and buckets.width != HOURS_OF["1d"]:
        raise invalid("group_by=day needs bucket_width=1d.", "bucket_width")


def needs_facts(grouped: frozenset[str]) -> bool:
    """Return whether the grouping needs attributes of the jobs, which are read separately."""
    return bool(grouped & FACTS or grouped - set(GROUPS))


def buckets_of(
    start: int | None,
    end: int | None,
    width: BucketWidth,
    limit: int | None,
    page: str | None,
    now: Ms,
) -> tuple[Buckets, int | None]:
    """The buckets of a page, as hours, and where the next page begins (None: this is the last).

    `start`, `end` (in seconds) default to the beginning of this month and now; no page goes on
    into the future.
    Raises ApiError 400.
    """
    hours, now_s = HOURS_OF[width], now // 1_000
    if limit is not None and not 1 <= limit <= LIMIT_MAX_OF[width]:
        raise invalid(
            f"limit must be from 1 to {LIMIT_MAX_OF[width]} for {width} buckets.", "limit"
        )
    start = month_start(now_s) if start is None else start
    if start > now_s:
        raise invalid("start_time is in the future; nothing was used then.", "start_time")
    if end is not None and end <= start:
        raise invalid("end_time must be after start_time.", "end_time")
    first = start // HOUR_S // hours * hours
    last = -(-min(now_s + 1, end or now_s + 1) // HOUR_S)
    begin = first if page is None else _page_start(page, first, last, hours)
    stop = begin + hours * (limit or LIMIT_OF[width])
    following = stop if stop < last else None
    return Buckets("hour_utc", begin, min(stop, last), hours), following


def month_start(seconds: int) -> int:
    """The first second of the calendar month (UTC) of a moment."""
    day = datetime.fromtimestamp(seconds, UTC)
    return int(datetime(day.year, day.month, 1, tzinfo=UTC).timestamp())


def page_name(hour: int) -> str:
    return f"{PAGE_PREFIX}{hour}"


def _page_start(page: str, first: int, last: int, hours: int) -> int:
    digits = page.removeprefix(PAGE_PREFIX)
    hour = int(digits) if digits.isascii() and digits.isdigit() else -1
    if not page.startswith(PAGE_PREFIX) or not first <= hour < last or hour % hours:
        raise unknown_page(page)
    return hour


def unknown_page(page: str) -> ApiError:
    return invalid(
        f"{page!r} is not a page of this query; use next_page of the page before.", "page"
    )


def summed(
    records: Iterable[Mapping[str, Any]], grouped: frozenset[str], jobs: Mapping[str, JobFacts]
) -> Mapping[int, Mapping[Group, UsageSum]]:
    """Bucket → group → sums, from sums by what `BY` names. Groups are sorted."""
    sums: dict[int, dict[Group, UsageSum]] = {}
    for record in records:
        facts = jobs.get(record["job_id"], JobFacts())
        group = facts.group(grouped, record["job_id"])._replace(
            lane=record["lane"] if "lane" in grouped else None,
            role=record["role"] if "role" in grouped else None,
            device=(record["accelerator"] or record["device"]) if "device" in grouped else None,
            spot=(SPOT if record["spot"] else "") if "spot" in grouped else None,
        )
        net = record["billable_gpu_ms"]
        credit = record["kind"] == "credit"
        added = UsageSum(
            used_gpu_ms=record["used_gpu_ms"],
            billable_gpu_ms=0 if credit else net,
            credited_gpu_ms=-net if credit else 0,
            tokens=record["tokens"],
        )
        bucket = sums.setdefault(record["bucket"], {})
        before = bucket.get(group, UsageSum())
        bucket[group] = UsageSum(*(sum(pair) for pair in zip(before, added, strict=True)))
    return {
        bucket: dict(sorted(results.items(), key=lambda result: _sortable(result[0])))
        for bucket, results in sums.items()
    }


def _sortable(group: Group) -> tuple[tuple[bool, str], ...]:
    return tuple((value is not None, str(value or "")) for value in group)
