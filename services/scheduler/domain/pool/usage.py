"""The money of a lease, in integers: slices per UTC hour, the cap, what the platform lost.

Everything is GPU-milliseconds (slots × elapsed). The worked example of the architecture is a test.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.envelope import Sha256
from schemas.pool import LeaseRef, Token, UsageCredited, UsageSliced
from schemas.training import Checkpoint
from schemas.units import HOUR_MS, GpuMs, Ms, Tokens, hour_of
from tunery.plan.price import billed_lease

BUDGET_NOTICE_MS: Final = 120_000  # the drain notice precedes the cap by this, or by half the lease


@dataclass(frozen=True)
class Slice:
    """Use of one lease in one UTC hour."""

    hour_utc: int  # hours since the epoch
    used_gpu_ms: GpuMs  # slots × elapsed
    billable_gpu_ms: GpuMs  # what of it is billed; the cap counts over all slices of the lease


class ChargedHour(Struct, frozen=True, kw_only=True):
    """Billed use of one lease in one UTC hour, less credits."""

    lease: LeaseRef
    hour_utc: int  # hours since the epoch
    # gpu_ms, tokens: billed time and tokens, not both zero
    gpu_ms: GpuMs
    tokens: Tokens = 0


def clamp(value: int, low: int, high: int) -> int:
    """`high` wins where the two bounds cross."""
    return min(max(value, low), high)


def slices(
    started_at: Ms, from_ms: Ms, to_ms: Ms, slots: int, gpu_ms_max: GpuMs
) -> tuple[Slice, ...]:
    """Return the use between two elapsed times of a lease, cut at UTC hours.

    billable = min(used, max), cumulative over the lease's slices: the one that reaches the cap is
    billed in part, later ones not at all.
    """
    parts: list[Slice] = []
    while from_ms < to_ms:
        hour_utc = hour_of(started_at + from_ms)
        until_ms = min(to_ms, (hour_utc + 1) * HOUR_MS - started_at)
        used, before = slots * (until_ms - from_ms), slots * from_ms
        billable = min(before + used, gpu_ms_max) - min(before, gpu_ms_max)
        parts.append(Slice(hour_utc, used, billable))
        from_ms = until_ms
    return tuple(parts)


def charge(charged: tuple[ChargedHour, ...], sliced: UsageSliced) -> tuple[ChargedHour, ...]:
    """Return the charged hours after one more slice."""
    if sliced.billable_gpu_ms == sliced.tokens == 0:
        return charged
    hour = ChargedHour(
        lease=sliced.lease,
        hour_utc=sliced.hour_utc,
        gpu_ms=sliced.billable_gpu_ms,
        tokens=sliced.tokens,
    )
    return (*charged, hour)


def newest_hours(
    charged: Sequence[ChargedHour], gpu_ms: GpuMs, tokens: Tokens = 0
) -> tuple[ChargedHour, ...]:
    """A credit by the leases and UTC hours that it takes back, oldest first.

    The newest of what is charged goes first. No hour gives back more than is charged for it, so a
    credit is at most the sum of all.
    """
    parts: dict[tuple[Token, int], ChargedHour] = {}
    for hour in reversed(charged):
        part, part_tokens = min(hour.gpu_ms, gpu_ms), min(hour.tokens, tokens)
        if part > 0 or part_tokens > 0:
            key = hour.lease.token, hour.hour_utc
            before = parts.get(key, replace(hour, gpu_ms=0, tokens=0))
            parts[key] = replace(
                hour, gpu_ms=before.gpu_ms + part, tokens=before.tokens + part_tokens
            )
        gpu_ms, tokens = gpu_ms - part, tokens - part_tokens
    return tuple(reversed(parts.values()))


def take_back(charged: tuple[ChargedHour, ...], credit: UsageCredited) -> tuple[ChargedHour, ...]:
    """Return the charged hours after a credit, which lowers the charge of its lease in its UTC
    hour.

    Journals from before credits were split have credits above what their hour is charged, or name
    another lease; the rest of those is taken from the newest of that hour, then of the others.
    """
    left, gpu_ms, tokens = list(charged), credit.lost_gpu_ms, credit.lost_tokens
    token = billed_lease(credit).token
    # Four passes instead of a sort, the first of which is nearly always enough: the refund of a
    # long job takes back one hour after the other.
    for wanted in product((True, False), repeat=2):
        for at in range(len(left) - 1, -1, -1):
            if not gpu_ms and not tokens:
                break
            hour = left[at]
            if (hour.hour_utc == credit.hour_utc, hour.lease.token == token) == wanted:
                part, part_tokens = min(hour.gpu_ms, gpu_ms), min(hour.tokens, tokens)
                left[at] = replace(
                    hour, gpu_ms=hour.gpu_ms - part, tokens=hour.tokens - part_tokens
                )
                gpu_ms, tokens = gpu_ms - part, tokens - part_tokens
    return tuple(hour for hour in left if hour.gpu_ms > 0 or hour.tokens > 0)


def whole_hours_ms(started_at: Ms, alive_at: Ms) -> Ms:
    """Elapsed time of a lease at the last UTC hour that its proof of life has passed."""
    return max(0, alive_at // HOUR_MS * HOUR_MS - started_at)


def lost_gpu_ms(billable_gpu_ms: GpuMs, slots: int, captured_ms: Ms) -> GpuMs:
    """Billed, but lost to the platform: what came after the capture of the last checkpoint."""
    return billable_gpu_ms - min(billable_gpu_ms, slots * captured_ms)


def skipped_gpu_ms(named: Sequence[Checkpoint], loaded: Sha256 | None, slots: int) -> GpuMs:
    """Work between the newest checkpoint that was named and the one that could be loaded.

    `named`: newest first, as in the grant. `captured_ms` counts within an attempt, so each attempt
    contributes up to its newest named capture; the loaded one's attempt only what came after it.
    """
    by_attempt: dict[int, Ms] = {}
    for checkpoint in named:
        if checkpoint.manifest_sha256 == loaded:
            newest = by_attempt.get(checkpoint.attempt, checkpoint.captured_ms)
            by_attempt[checkpoint.attempt] = newest - checkpoint.captured_ms
            break
        newest = by_attempt.get(checkpoint.attempt, 0)
        by_attempt[checkpoint.attempt] = max(newest, checkpoint.captured_ms)
    return slots * sum(by_attempt.values())


def tokens_at(named: Sequence[Checkpoint], loaded: Sha256 | None) -> Tokens:
    """Tokens that are trained already when an attempt continues from `loaded`; None: it begins."""
    return next((kept.tokens for kept in named if kept.manifest_sha256 == loaded), 0)


def skipped_tokens(named: Sequence[Checkpoint], loaded: Sha256 | None) -> Tokens:
    """Trained tokens between the newest checkpoint that was named and the one that was loaded."""
    newest = named[0].tokens if named else 0
    return max(0, newest - tokens_at(named, loaded))


def cap_ms(gpu_ms_max: GpuMs, slots: int) -> Ms:
    """Elapsed time at which a lease reaches its cap."""
    return gpu_ms_max // slots


def notice_ms(gpu_ms_max: GpuMs, slots: int) -> Ms:
    """Elapsed time at which the drain notice before the cap goes out."""
    cap = cap_ms(gpu_ms_max, slots)
    return max(cap - BUDGET_NOTICE_MS, cap // 2)
