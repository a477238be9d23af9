"""Limits requests without a valid key, by the address of their sender."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from schemas.units import Ms
from services.gateway.web.connections import network_of
from services.gateway.web.domain.token_bucket import Allowance, answer, take

PER_MINUTE: Final = 300  # refused requests of one address
REMEMBERED_MAX: Final = 10_000  # addresses, and keys; the least recently used is forgotten


class WrongKeys:
    """Counts requests that were refused with 401, for each address.

    An address above the limit gets no further lookups of keys, which cost two queries each. A key
    that was valid before is not held up by others of the same address: behind one address may be
    a whole office. `now_us`: any clock that never goes back.
    """

    def __init__(self, now_us: Callable[[], int] = lambda: time.monotonic_ns() // 1_000) -> None:
        self._now_us = now_us
        self._full_at_us: OrderedDict[str, int] = OrderedDict()
        self._valid: OrderedDict[bytes, None] = OrderedDict()

    def limit(self, address: str, authorization: str | None) -> Allowance | None:
        """The exhausted allowance when this request must not be looked at; otherwise None."""
        full_at_us = self._full_at_us.get(network_of(address), 0)
        late_ms: Ms = take(full_at_us, self._now_us(), PER_MINUTE)[1].retry_ms
        if late_ms == 0 or _digest(authorization) in self._valid:
            return None
        return answer(PER_MINUTE, max(0, full_at_us - self._now_us()), late_ms * 1_000)

    def refused(self, address: str) -> None:
        network = network_of(address)
        full_at_us = self._full_at_us.pop(network, 0)
        self._full_at_us[network] = take(full_at_us, self._now_us(), PER_MINUTE)[0]
        if len(self._full_at_us) > REMEMBERED_MAX:
            self._full_at_us.popitem(last=False)

    def accepted(self, authorization: str | None) -> None:
        digest = _digest(authorization)
        self._valid.pop(digest, None)
        self._valid[digest] = None
        if len(self._valid) > REMEMBERED_MAX:
            self._valid.popitem(last=False)


def _digest(authorization: str | None) -> bytes:
    return hashlib.sha256((authorization or "").encode("utf-8", "surrogateescape")).digest()
