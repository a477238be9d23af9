"""Snapshots: the fold of a partition as a blob, and a pointer record that names it.

Snapshots only save time: if one cannot be used, the older one is tried, then the journal is folded
from zero. Two slots alternate, so a new snapshot never replaces the one before it.
"""

import logging
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, Generic, TypeVar, get_args, get_origin

import msgspec
from immutables import Map
from msgspec import Struct

from schemas.envelope import Sha256
from schemas.streams import SNAPSHOTS_TOPIC, Stream
from tunery.runtime.blobs.abstract import BlobError
from tunery.runtime.bus.abstract import BusError, Log
from tunery.runtime.journal.acceptance import record_hash
from tunery.runtime.journal.codec import MALFORMED, canonical
from tunery.runtime.journal.fold import Fold
from tunery.runtime.journal.ports import JournalPorts
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.verbs import Aggregate

LOG: Final = logging.getLogger("tunery.journal")
SLOTS: Final = 2
READ_WAIT_MS: Final = 500
READ_EMPTY_MAX: Final = 4  # polls without a record, before the rest is taken for compacted away

S = TypeVar("S")


class Pointer(Struct, frozen=True, kw_only=True):
    """The record under `stream/partition/slot`."""

    stream: str
    partition: int
    slot: int
    offset: int  # next journal offset of the fold
    fold_version: int
    blob: str
    sha256: Sha256


class _NotGood(Exception):
    """Why a snapshot is not used."""


async def read_pointers(log: Log, stream: Stream, partition: int) -> dict[int, Pointer]:
    """The snapshots of a partition that there are, by slot. Raises Unavailable, OutOfRange."""
    start, end = await log.bounds(SNAPSHOTS_TOPIC, partition)
    pointers: dict[int, Pointer] = {}
    if start == end:
        return pointers
    reader = await log.reader(SNAPSHOTS_TOPIC, {partition: start})
    try:
        following = start
        for _ in range(READ_EMPTY_MAX):
            while records := await reader.poll(READ_WAIT_MS, 1_000):
                following = records[-1].offset + 1
                for record in records:
                    try:
                        pointer = msgspec.json.decode(record.value, type=Pointer)
                    except MALFORMED as error:
                        _warn(stream, partition, "snapshot.pointer_unreadable", error)
                        continue
                    if (pointer.stream, pointer.partition) == (stream.name, partition):
                        pointers[pointer.slot] = pointer
                if following >= end:
                    return pointers
    finally:
        await reader.close()
    return pointers


def _warn(stream: Stream, partition: int, event: str, why: Exception, **fields: Any) -> None:
    log_event(
        LOG, logging.WARNING, event, stream=stream.name, partition=partition, why=why, **fields
    )


class SnapshotReader(Generic[S]):
    """Reads the snapshots of one partition.

    fold_version: others are not used. None: the reader is not their writer; all are used that
      have the fields of its `state_type`, which is a part of the writer's.
    """

    def __init__(
        self,
        parts: JournalPorts,
        stream: Stream,
        state_type: Any,
        initial: S,
        partition: int,
        fold_version: int | None = None,
    ) -> None:
        self._log, self._blobs = parts.log, parts.blobs
        self._stream, self._initial, self._partition = stream, initial, partition
        self._fold_version = fold_version
        generic: Any = Fold
        self._decoder: msgspec.json.Decoder[Fold[S]] = msgspec.json.Decoder(
            generic[state_type], dec_hook=revive
        )
        self._pointers: dict[int, Pointer] = {}
        self.bytes_last = 0  # of the one loaded or kept last

    async def load(
        self, at_hand: Fold[S] | None = None, wanted: Callable[[S], bool] = lambda _: True
    ) -> Fold[S]:
        """The fold at hand or of a snapshot, the newest good one; or the empty one.

        wanted: says of the state of a snapshot whether it is used
        Raises nothing of its own.
        """
        try:
            self._pointers = await read_pointers(self._log, self._stream, self._partition)
        except BusError as error:
            self._warn("snapshot.pointers_not_read", error)
            self._pointers = {}
        if at_hand is not None and at_hand.last_offset >= 0:
            try:
                await self._check_journal(at_hand)
                return at_hand
            except (_NotGood, BusError) as error:
                self._warn("snapshot.standby_not_used", error, offset=at_hand.position.offset)
        for pointer in sorted(self._pointers.values(), key=lambda pointer: -pointer.offset):
            try:
                fold = await self._open(pointer)
                if wanted(fold.state):
                    return fold
            except (_NotGood, BlobError, BusError, *MALFORMED) as error:
                self._warn("snapshot.not_used", error, offset=pointer.offset)
        return Fold(self._initial)

    async def _open(self, pointer: Pointer) -> Fold[S]:
        if self._fold_version not in (None, pointer.fold_version):
            raise _NotGood(f"it has fold version {pointer.fold_version}")
        body = await self._blobs.get(pointer.blob, sha256=pointer.sha256)
        fold = self._decoder.decode(body)
        await self._check_journal(fold)
        self.bytes_last = len(body)
        return fold

    async def _check_journal(self, fold: Fold[S]) -> None:
        """Check that the journal still holds the last record that the snapshot contains."""
        topic = self._stream.journal.name
        _, end = await self._log.bounds(topic, self._partition)
        if not 0 <= fold.last_offset < fold.position.offset <= end:
            raise _NotGood(f"it is beyond the journal's end {end}")
        reader = await self._log.reader(topic, {self._partition: fold.last_offset})
        try:
            for _ in range(READ_EMPTY_MAX):
                for record in await reader.poll(READ_WAIT_MS, 1):
                    if record_hash(record.value) == fold.position.acceptance.prev:
                        return
                    raise _NotGood("the journal has another record at its end")
        finally:
            await reader.close()
        raise _NotGood("its last record cannot be read")

    def _warn(self, event: str, why: Exception, **fields: Any) -> None:
        _warn(self._stream, self._partition, event, why, **fields)


class Snapshots(SnapshotReader[S]):
    """The snapshots of one partition: `load` at the beginning of a term, `save` within it."""

    def __init__(self, parts: JournalPorts, aggregate: Aggregate[S], partition: int) -> None:
        super().__init__(
            parts,
            aggregate.stream,
            aggregate.state_type,
            aggregate.initial,
            partition,
            aggregate.fold_version,
        )
        self._aggregate = aggregate
        self._round_trips: bool | None = None

    async def save(self, fold: Fold[S]) -> None:
        """Save a settled fold. A failure is logged only: there will be another snapshot."""
        body = canonical(fold)
        self.bytes_last = len(body)
        if not self._comes_back(fold, body):
            return
        newest = max(self._pointers.values(), key=lambda pointer: pointer.offset, default=None)
        slot = 0 if newest is None else (newest.slot + 1) % SLOTS
        replaced = self._pointers.get(slot)
        digest = sha256(body).hexdigest()
        pointer = Pointer(
            stream=self._stream.name,
            partition=self._partition,
            slot=slot,
            offset=fold.position.offset,
            fold_version=self._aggregate.fold_version,
            blob=f"snapshots/{self._stream.name}/{self._partition}/{digest}.json",
            sha256=digest,
        )
        key = f"{self._stream.name}/{self._partition}/{slot}".encode()
        try:
            await self._blobs.put(pointer.blob, body, sha256=digest)
            # The pointer last: what it names is complete.
            await self._log.send(
                SNAPSHOTS_TOPIC, key, msgspec.json.encode(pointer), self._partition
            )
            self._pointers[slot] = pointer
            if replaced is not None and replaced.blob != pointer.blob:
                await self._blobs.delete(replaced.blob)
        except (BlobError, BusError) as error:
            self._warn("snapshot.not_taken", error)

    def _comes_back(self, fold: Fold[S], body: bytes) -> bool:
        """Return whether the state survives encoding and decoding; checked once per process."""
        if self._round_trips is None:
            try:
                self._round_trips = self._decoder.decode(body) == fold
            except (msgspec.DecodeError, TypeError) as error:
                self._round_trips = False
                self._warn("snapshot.not_decoded", error)
            if not self._round_trips:
                log_event(
                    LOG,
                    logging.ERROR,
                    "snapshot.state_not_restorable",
                    stream=self._stream.name,
                    state_type=self._aggregate.state_type,
                    hint="no snapshots: the state differs from what its encoding decodes to",
                )
        return self._round_trips


def revive(wanted: Any, plain: Any) -> Any:
    """`dec_hook` of msgspec, inverse of `codec.plain_map`: persistent maps with typed content.

    Entry by entry, and each plain one is let go at once: a partition's state may be large.
    """
    if get_origin(wanted) is not Map:
        raise NotImplementedError(f"{wanted} cannot be decoded")
    key_type, value_type = get_args(wanted)
    typed = Map[Any, Any]().mutate()
    while plain:
        key, value = plain.popitem()
        # JSON knows no keys but texts
        key = key if key_type is str else msgspec.convert(key, key_type, strict=False)
        typed[key] = msgspec.convert(value, value_type, dec_hook=revive)
    return typed.finish()
