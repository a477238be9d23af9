"""A journal of `pool` with use and credits, written record by record."""

from schemas.envelope import GENESIS, Claim, Entry, Message
from schemas.pool import LeaseRef, Token, UsageCredited, UsageSliced
from schemas.streams import Stream
from schemas.topics import POOL
from schemas.units import HOUR_MS
from tunery.billing.periods import period
from tunery.plan.price import PRICES_DIR, SUFFIX, load_price_books
from tunery.platform.settings import read_files
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.journal.acceptance import record_hash
from tunery.runtime.journal.codec import encode, raw_events

HOUR = period("2026-11").first_hour
BOOKS = load_price_books(read_files(PRICES_DIR, SUFFIX))


def lease(number: int, tenant: str = "acme") -> LeaseRef:
    return LeaseRef(
        token=Token(pool="default", lease=number),
        tenant=tenant,
        job_id=f"ftjob-{number}",
        attempt=1,
        role="train",
        lane="standard",
        price_version="2026-11",
    )


def sliced(ref: LeaseRef, gpu_ms: int = HOUR_MS, hour: int = HOUR) -> UsageSliced:
    return UsageSliced(lease=ref, hour_utc=hour, used_gpu_ms=gpu_ms, billable_gpu_ms=gpu_ms)


def credited(ref: LeaseRef, gpu_ms: int, hour: int = HOUR) -> UsageCredited:
    return UsageCredited(lease=ref, hour_utc=hour, lost_gpu_ms=gpu_ms, cause="lost")


class JournalRecords:
    """The records of one partition that is owned by one process, in their order.

    hour: in which all are written. key: of those that follow. tenant: of all.
    """

    def __init__(self, hour: int = HOUR, key: str = "default", tenant: str = "") -> None:
        self._at, self.key, self._tenant = hour * HOUR_MS, key, tenant
        self.claim = encode(Claim(owner="o", nonce="n"))
        self._previous, self._cause = GENESIS, -1

    def following(self, *events: Message) -> bytes:
        """The next record, with these events."""
        self._cause += 1
        entry = Entry(
            epoch=0,
            cause=self._cause,
            prev=self._previous,
            at=self._at,
            command_id=f"c{self._cause}",
            key=self.key,
            tenant=self._tenant,
            seq=self._cause,
            events=raw_events(events),
        )
        value = encode(entry)
        self._previous = record_hash(value)
        return value


class JournalWriter:
    """One partition of a journal in memory."""

    def __init__(
        self,
        log: MemoryLog,
        partition: int,
        stream: Stream = POOL,
        *,
        hour: int = HOUR,
        key: str = "default",
        tenant: str = "",
    ) -> None:
        self._log, self._partition, self._name = log, partition, stream.journal.name
        self._records = JournalRecords(hour, key, tenant)
        self._put(self._records.claim)

    def append(self, *events: Message) -> int:
        """One record with these events; returns its offset."""
        return self._put(self._records.following(*events))

    def _put(self, value: bytes) -> int:
        return self._log.put(self._name, self._partition, b"default", value).offset
