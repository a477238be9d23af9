"""Expected cost of a lease by decision 0005, without the scheduler's arithmetic."""

from collections import Counter
from collections.abc import Mapping

from schemas.training import Checkpoint
from schemas.units import HOUR_MS, GpuMs, Ms


def hours(
    started_at: Ms, elapsed_ms: Ms, slots: int, gpu_ms_max: GpuMs
) -> dict[int, tuple[GpuMs, GpuMs]]:
    """Use and bill of [start, start + elapsed) by UTC hour."""

    def billed(until: Ms) -> GpuMs:
        return min(slots * (until - started_at), gpu_ms_max)

    end, by_hour = started_at + elapsed_ms, {}
    for hour in range(started_at // HOUR_MS, end // HOUR_MS + 1):
        first = max(started_at, hour * HOUR_MS)
        last = min(end, (hour + 1) * HOUR_MS)
        if last > first:
            by_hour[hour] = (slots * (last - first), billed(last) - billed(first))
    return by_hour


def lost_by_hour(truth: dict[int, tuple[GpuMs, GpuMs]], captured_gpu_ms: GpuMs) -> Counter[int]:
    """Return the billed time of a lease after its last captured checkpoint, by UTC hour."""
    lost, before = Counter[int](), 0
    for hour, (_, billable) in sorted(truth.items()):
        lost[hour] = billable - min(billable, max(0, captured_gpu_ms - before))
        before += billable
    return +lost


def newest_first(paid: Mapping[int, GpuMs], gpu_ms: GpuMs) -> dict[int, GpuMs]:
    """A credit by hour: from the newest backwards, and never more than was paid for."""
    owed: dict[int, GpuMs] = {}
    for hour in sorted(paid, reverse=True):
        if (part := min(paid[hour], gpu_ms - sum(owed.values()))) > 0:
            owed[hour] = part
    return owed


def unusable_ms(checkpoints: tuple[Checkpoint, ...], loaded: str | None) -> Ms:
    """Work paid for whose checkpoints cannot be read: for each attempt up to its newest capture,
    less what the checkpoint that was loaded keeps of its own attempt."""
    lost: dict[int, Ms] = {}
    for checkpoint in checkpoints:
        newest = max(lost.get(checkpoint.attempt, 0), checkpoint.captured_ms)
        if checkpoint.manifest_sha256 == loaded:
            lost[checkpoint.attempt] = newest - checkpoint.captured_ms
            break
        lost[checkpoint.attempt] = newest
    return sum(lost.values())
