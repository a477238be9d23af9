"""Records what the production deciders write to a journal, as the owner of a partition does.

Everything is derived from the history's name: recorded twice, the bytes are the same.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final
from uuid import uuid5

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from schemas.envelope import Claim, Envelope, Message
from schemas.ids import NAMESPACE
from schemas.sealed import Sealed
from schemas.units import Ms
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.sealer import NONCE_BYTES
from tunery.runtime.bus.abstract import Record
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.acceptance import judge
from tunery.runtime.journal.codec import codec_of, decode_record, encode
from tunery.runtime.journal.decision import decide_record
from tunery.runtime.journal.fold import Fold
from tunery.runtime.journal.reader import Position
from tunery.runtime.verbs import Aggregate

BEGAN: Final[Ms] = 1_793_534_400_000  # 2026-11-01, a full hour
TENANT: Final = "acme"


def drawing(seed: str) -> Callable[[int], bytes]:
    """Bytes that follow from a text, for keys and nonces of which nothing depends."""
    drawn = 0

    def draw(count: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return sha256(f"{seed}/{drawn}".encode()).digest()[:count]

    return draw


def keys() -> MemoryKeyStore:
    """The keys with which all histories were sealed."""
    key_store = MemoryKeyStore(drawing("keys"))
    key_store.get(TENANT)
    return key_store


class Recorder:
    """One partition. `when` decides a command, `claim` begins an epoch, `stale` is a zombie's."""

    def __init__(self, name: str, aggregate: Aggregate[Any], key: str) -> None:
        self.name, self.aggregate, self.key, self.at = name, aggregate, key, BEGAN
        self.records: list[Record] = []
        self.fold: Fold[Any] = Fold(aggregate.initial)
        self._partition = partition_of(key.encode())
        self._draw = drawing(name)
        self._commands = 0
        self.claim("owner-1")

    @property
    def bounds(self) -> dict[int, tuple[int, int]]:
        return {self._partition: (0, len(self.records))}

    def seal(self, text: str) -> Sealed:
        """As texts were sealed before it was authenticated what they are."""
        ring = keys().get(TENANT)
        assert ring is not None
        key, nonce = ring.current, self._draw(NONCE_BYTES)
        body = AESGCM(key.secret).encrypt(nonce, text.encode(), key.key_id.encode())
        return Sealed(key_id=key.key_id, nonce=nonce, ciphertext=body)

    def claim(self, owner: str, base: int | None = None) -> None:
        nonce = sha256(f"{self.name}/{len(self.records)}".encode()).hexdigest()[:32]
        self._append(b"", encode(Claim(owner=owner, nonce=nonce, base=base)))

    def stale(self) -> None:
        """Append the last entry again, which is void under any epoch."""
        last = next(record for record in reversed(self.records) if record.key)
        self._append(last.key, last.value)

    def when(
        self, command: Message, *, key: str = "", after_ms: Ms = 1_000, **envelope: Any
    ) -> tuple[Any, ...]:
        """The events that the command led to."""
        self._commands += 1
        where = key or self.key
        frame = {
            "id": str(uuid5(NAMESPACE, f"{self.name}/{self._commands}")),
            "tenant": where if self.aggregate.stream.key == "tenant" else "",
            "body": msgspec.Raw(msgspec.json.encode(command)),
        }
        whole = Envelope(key=where, **(frame | envelope))
        return self.given(msgspec.json.encode(whole), after_ms)

    def given(self, value: bytes, after_ms: Ms = 1_000) -> tuple[Any, ...]:
        """The events that these bytes of a command led to."""
        self.at += after_ms
        cause = self.fold.position.acceptance.cause + 1
        record = Record(self._partition, cause, self.at, self.key.encode(), value)
        decided = decide_record(self.aggregate, self.fold, record, len(self.records))
        self.records.append(
            Record(self._partition, len(self.records), self.at, decided.key, decided.value)
        )
        self.fold = decided.fold
        entry: Any = decode_record(decided.value)
        return codec_of(self.aggregate.stream).events(entry)

    def _append(self, key: bytes, value: bytes) -> None:
        """Append a record that changes only the state of the acceptance rule."""
        offset = len(self.records)
        self.records.append(Record(self._partition, offset, self.at, key, value))
        acceptance, reason = judge(
            self.fold.position.acceptance, offset, decode_record(value), value
        )
        assert reason is not None
        position = Position(offset + 1, acceptance)
        self.fold = msgspec.structs.replace(self.fold, position=position)
