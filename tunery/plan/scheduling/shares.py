"""What tenants have used of late: GPU time that counts for half after each half-life."""

from schemas.units import GpuMs, Ms


class Shares:
    """GPU time by tenant, in integers.

    Old use is not made smaller: new use weighs more, twice as much after each half-life and in
    proportion between. Tenants compare as if all had decayed.
    """

    __slots__ = ("_half_life_ms", "_used")

    def __init__(self, half_life_ms: Ms) -> None:
        self._half_life_ms = half_life_ms
        self._used: dict[str, int] = {}

    def charge(self, tenant: str, gpu_ms: GpuMs, at: Ms) -> None:
        """A tenant used so much at a moment, or less than it was charged for then."""
        halvings, rest = divmod(at, self._half_life_ms)
        weight = (self._half_life_ms + rest) << halvings
        self._used[tenant] = max(0, self._used.get(tenant, 0) + gpu_ms * weight)

    def level(self, tenant: str) -> int:
        """Return a tenant's use on a logarithmic scale: one step per doubling."""
        return self._used.get(tenant, 0).bit_length()
