"""Why jobs wait, in a terminal: of one job, and of a whole queue."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from tunery.cli import _api

DAY_S: Final = 86_400


def queue_fields(queue: Any, now: float) -> list[tuple[str, Any]]:
    """(name, value) of what a person wants to know about a wait; values may be empty.

    `now`: in seconds, to show times of other days with their date.
    """
    if not queue:
        return []
    position, since = queue.get("position"), queue.get("since")
    return [
        ("waiting", queue.get("reason")),
        ("since", since and _with_zone(_clock(since, now), now)),
        ("until", queue.get("unblocked_by")),
        ("position", position and f"{position} in the lane {queue.get('lane')}"),
        ("before it", queue.get("jobs_ahead")),
        ("starts", _with_zone(interval(queue.get("eta"), queue.get("eta_latest"), now), now)),
    ]


def start_columns(now: float) -> dict[str, str | Callable[[Any], Any]]:
    """Columns of a table of changes that may start a job sooner."""

    def starts(row: Any) -> str:
        queue = row["queue"] or {}
        if queue.get("code") == "next_decision":
            return "now"
        return interval(queue.get("eta"), queue.get("eta_latest"), now) or "not by itself"

    return {
        "change": "text",
        "starts": starts,
        "price": lambda row: _api.money(row["amount_micro"], row["currency"]),
        "then it waits because": lambda row: (row["queue"] or {}).get("reason"),
        "refused": lambda row: "; ".join(map(refusal_line, row["refusals"])) or None,
    }


def refusal_line(refusal: Any) -> str:
    """Return why a job would be refused, and how much more of a budget would admit it."""
    if refusal.get("more_micro") is not None:
        return f"{refusal['message']} {refusal['more_micro'] / 1e6:,.2f} more would admit it."
    if refusal.get("more_gpu_ms") is not None:
        hours = refusal["more_gpu_ms"] / 3_600_000
        return f"{refusal['message']} {hours:,.2f} GPU-hours more would admit it."
    return str(refusal["message"])


def _with_zone(times: str, now: float) -> str:
    if not times or times == "now":
        return times
    return f"{times} {datetime.fromtimestamp(now, UTC).astimezone():%Z}"


def interval(earliest: int | None, latest: int | None, now: float) -> str:
    """When something is expected to begin, in local time; empty where that is not known."""
    if earliest is None:
        return ""
    begin, end = _clock(earliest, now), _clock(latest or earliest, now)
    if earliest <= now + 1:
        return "now" if (latest or earliest) <= now + 60 else f"by {end}"
    return begin if begin == end else f"{begin} to {end}"


def _clock(at: int, now: float) -> str:
    local = datetime.fromtimestamp(at, UTC).astimezone()
    is_near = (
        abs(at - now) < DAY_S and local.day == datetime.fromtimestamp(now, UTC).astimezone().day
    )
    return local.strftime("%H:%M" if is_near else "%m-%d %H:%M")


def decisions(pool: Any, now: float) -> Iterator[str]:
    """One line for each decision that the pool would make now."""
    coming = pool["next"]
    for start in coming["starts"]:
        yield f"start {start['job_id']} on {_seats(start['seats'])}"
    for preemption in coming["preemptions"]:
        stopped = ", ".join(preemption["stops"])
        yield f"stop {stopped} for {preemption['job_id']} on {_seats(preemption['seats'])}"
    for reserved in coming["reservations"]:
        when = _clock(reserved["at"], now)
        yield f"reserve {_seats(reserved['seats'])} from {when} for {reserved['job_id']}"


def _seats(seats: Any) -> str:
    return ", ".join(f"{seat['node']} ({seat['slots']})" for seat in seats)
