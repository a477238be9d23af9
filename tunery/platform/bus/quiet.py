"""Log filter: of a line that an outage repeats thousands of times it keeps one per interval."""

import logging
import time
from typing import Final

INTERVAL_S: Final = 10.0
SEEN_MAX: Final = 1_000
VARYING_FIELDS: Final = frozenset({"why", "tries"})


class _OncePerInterval(logging.Filter):
    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.CRITICAL:
            return True
        subject, now = (record.name, _subject(record)), time.monotonic()
        if now - self._last.get(subject, -INTERVAL_S) < INTERVAL_S:
            return False
        if len(self._last) >= SEEN_MAX:
            self._last.clear()
        self._last[subject] = now
        return True


def _subject(record: logging.LogRecord) -> str:
    """Return the key by which lines count as repeated: message, and fields that do not vary."""
    fields = getattr(record, "fields", {})
    return f"{record.msg} {[fields[name] for name in sorted(fields.keys() - VARYING_FIELDS)]}"


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
    "librdkafka",
    "tunery.bus",
    "tunery.hosts",
    "tunery.journal",
    "tunery.reactor",
)


def quieten() -> None:
    """Keep of Kafka's clients and the event core each line once in ten seconds.

    Levels of libraries are set where logging is configured (`tunery.runtime.telemetry.logs`).
    """
    for name in _NOISY:
        logger = logging.getLogger(name)
        if _FILTER not in logger.filters:
            logger.addFilter(_FILTER)
