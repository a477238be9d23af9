"""The acceptance rule: which journal records count. One implementation, used by every reader.

A partition is totally ordered and the rule sees nothing but the records, so all readers agree.
Divergence is not a void record: it means that this log is not the one the position came from.
"""

from hashlib import blake2b
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from schemas.envelope import FIRST_LEVEL, GENESIS, HASH_BYTES, Claim, Entry, JournalRecord

Reason: TypeAlias = Literal["claim", "epoch", "cause"]


class Acceptance(Struct, frozen=True, array_like=True, gc=False):
    """State of the rule in one partition."""

    incarnation: int = 0  # offset of the last operator's claim (0: none)
    epoch: int = -1  # offset of the last claim
    cause: int = -1  # logical number of the last accepted command
    prev: bytes = GENESIS  # hash of the last accepted record
    base: int = 0  # logical number that the command at physical offset 0 has
    # nothing was accepted since the base was set, so there is no decided command to compare with
    fresh: bool = True
    # `cause` at the last claim, None when that was read before this was kept
    opened: int | None = None
    # offset of the claim before the last, None when that was read before this was kept
    former: int | None = None
    level: int = FIRST_LEVEL  # highest of the entries that were accepted


INITIAL: Final = Acceptance()


class PartitionStopped(Exception):
    """The partition stops until an operator has looked; the message says where and why."""

    def __init__(self, stream: str, partition: int, offset: int, why: str) -> None:
        super().__init__(f"{stream}/{partition} at offset {offset}: {why}")
        self.stream, self.partition, self.offset, self.why = stream, partition, offset, why


class Divergence(PartitionStopped):
    """The log contradicts what was read or written before. Never treated as a void record."""


class Unreadable(PartitionStopped):
    """A journal record that this version cannot decode: deploy readers before writers."""


class Poison(PartitionStopped):
    """A command of a saga, or a tick, that the decider cannot take."""


class Diverged(Exception):
    """Divergence as `judge` raises it; `read_record` adds the partition and offset."""


def record_hash(value: bytes) -> bytes:
    """BLAKE2b of a record's value bytes, 32 bytes."""
    return blake2b(value, digest_size=HASH_BYTES).digest()


def judge(
    state: Acceptance, offset: int, record: JournalRecord, value: bytes
) -> tuple[Acceptance, Reason | None]:
    """State after the record, and None when it is accepted, else why it does not count.

    `value` is the record's bytes as they are in the log. The order of the tests is part of the
    rule: epoch, opened, cause, prev. Raises Diverged.
    """
    match record:
        case Entry():
            return _entry(state, record, value)
        case Claim():
            return _claimed(state, offset, record), "claim"


def _claimed(state: Acceptance, offset: int, claim: Claim) -> Acceptance:
    cause = state.cause
    if claim.base is None:
        return Acceptance(
            *(state.incarnation, offset, cause, state.prev, state.base, state.fresh),
            *(cause, state.epoch, state.level),
        )
    return Acceptance(
        *(offset, offset, cause, state.prev, claim.base, True, cause, state.epoch, state.level)
    )


def _entry(state: Acceptance, entry: Entry, value: bytes) -> tuple[Acceptance, Reason | None]:
    if entry.epoch < state.epoch:
        if state.former is not None and entry.epoch > state.former:
            raise Diverged(
                f"epoch {entry.epoch} is of a claim that was not there when this log was read "
                f"from {state.former} to {state.epoch}"
            )
        return state, "epoch"
    if entry.epoch > state.epoch:
        raise Diverged(f"epoch {entry.epoch} is newer than any claim seen ({state.epoch})")
    if entry.opened != state.opened and None not in (entry.opened, state.opened):
        # else a log that lost its end would be void for ever to readers that have read that end
        raise Diverged(
            f"{entry.opened} was accepted at the claim by its owner, {state.opened} here"
        )
    if entry.cause != state.cause + 1:
        return state, "cause"
    if entry.prev != state.prev:
        raise Diverged("the hash chain is broken: another record was accepted before this one")
    return (
        Acceptance(
            state.incarnation,
            state.epoch,
            entry.cause,
            record_hash(value),
            state.base,
            False,
            state.opened,
            state.former,
            max(state.level, entry.level),
        ),
        None,
    )
