"""During an outage aiokafka logs the same line thousands of times. This keeps one per interval."""

import logging
import time
from typing import Final

INTERVAL_S: Final = 10.0
SEEN_MAX: Final = 1_000


class _OncePerInterval(logging.Filter):
    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        place, now = (record.name, str(record.msg)), time.monotonic()
        if now - self._last.get(place, -INTERVAL_S) < INTERVAL_S:
            return False
        if len(self._last) >= SEEN_MAX:
            self._last.clear()
        self._last[place] = now
        return True


_FILTER: Final = _OncePerInterval()
_NOISY: Final = (
    "aiokafka",
    "aiokafka.conn",
    "aiokafka.cluster",
    "aiokafka.consumer.consumer",
    "aiokafka.consumer.fetcher",
    "aiokafka.consumer.group_coordinator",
    "aiokafka.consumer.subscription_state",
    "aiokafka.producer.sender",
    "aiokafka.producer.producer",
)


def quieten() -> None:
    """Only warnings of aiokafka, each at most once in ten seconds. Repeating the call is free."""
    logging.getLogger("aiokafka").setLevel(logging.WARNING)
    for name in _NOISY:
        logger = logging.getLogger(name)
        if _FILTER not in logger.filters:
            logger.addFilter(_FILTER)
