"""Bytes of commands, journal records and states: typed decoders by stream, canonical encoding."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, get_args

import msgspec
from immutables import Map

from schemas.envelope import HASH_BYTES, Entry, Envelope, JournalRecord, Message
from schemas.streams import Stream

ENCODER = msgspec.json.Encoder()
_RECORD: msgspec.json.Decoder[JournalRecord] = msgspec.json.Decoder(JournalRecord)
_ENVELOPE = msgspec.json.Decoder(Envelope)


#: what decoding untrusted bytes raises; nesting without end is no syntax error to msgspec
MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Undecodable(Exception):
    """Bytes that this version cannot read."""


class _Tagged(msgspec.Struct):
    """The part of a message that says what it is."""

    type: str


_TAGGED = msgspec.json.Decoder(_Tagged)


@dataclass(frozen=True)
class Codec:
    """Typed decoders of one stream, built once: building costs far more than decoding."""

    command_decoder: msgspec.json.Decoder[Any]
    event_decoder: msgspec.json.Decoder[Any]
    upcasts: Mapping[type[Any], Callable[[Any], Any]]
    event_tags: frozenset[Any]  # of the events that this release knows

    def command(self, envelope: Envelope) -> Any:
        """Raises Undecodable."""
        try:
            return self.command_decoder.decode(envelope.body)
        except MALFORMED as error:
            raise Undecodable(str(error)) from error

    def events(self, entry: Entry) -> tuple[Any, ...]:
        """The newest version of each; without those that are newer than this release and may be
        skipped. Raises Undecodable.
        """
        decode = self.event_decoder.decode
        try:
            raw_events = self._known(entry) if entry.skippable else entry.events
            events = tuple([decode(raw) for raw in raw_events])
        except MALFORMED as error:
            raise Undecodable(str(error)) from error
        return tuple([self._newest(event) for event in events]) if self.upcasts else events

    def _known(self, entry: Entry) -> Sequence[msgspec.Raw]:
        """The events that a reader has to know, and those of the others that this one knows."""
        return [
            raw
            for index, raw in enumerate(entry.events)
            if index not in entry.skippable or _TAGGED.decode(raw).type in self.event_tags
        ]

    def _newest(self, event: Any) -> Any:
        while (upcast := self.upcasts.get(type(event))) is not None:
            try:
                event = upcast(event)
            except Exception as error:
                name = type(event).__name__
                raise Undecodable(f"{name} was not brought up to date: {error!r}") from error
        return event


@lru_cache(maxsize=64)
def _codec(name: str, command: Any, event: Any, upcasts: Any) -> Codec:
    tags = frozenset(kind.__struct_config__.tag for kind in get_args(event) or (event,))
    decoders = msgspec.json.Decoder(command), msgspec.json.Decoder(event)
    return Codec(*decoders, dict(upcasts), tags)


#: the stream of each name that was asked for last, as hashing the types takes longer than decoding
_LATEST: dict[str, tuple[Stream, Codec]] = {}


def codec_of(stream: Stream) -> Codec:
    latest = _LATEST.get(stream.name)
    if latest is None or latest[0] is not stream:
        codec = _codec(stream.name, stream.command, stream.event, stream.upcasts)
        latest = _LATEST[stream.name] = (stream, codec)
    return latest[1]


def decode_record(value: bytes) -> JournalRecord:
    """Raises Undecodable."""
    try:
        return _RECORD.decode(value)
    except MALFORMED as error:
        raise Undecodable(str(error)) from error


def decode_envelope(value: bytes) -> Envelope:
    """Raises Undecodable."""
    try:
        return _ENVELOPE.decode(value)
    except MALFORMED as error:
        raise Undecodable(str(error)) from error


def encode(value: JournalRecord | Envelope) -> bytes:
    return ENCODER.encode(value)


def raw_events(events: Sequence[Message]) -> tuple[msgspec.Raw, ...]:
    return tuple([msgspec.Raw(ENCODER.encode(event)) for event in events])


def plain_map(value: Any) -> Any:
    """`enc_hook` of msgspec for what our states are made of."""
    if isinstance(value, Map):
        return {str(key): item for key, item in value.items()}  # JSON knows no other keys
    raise NotImplementedError(f"{type(value).__name__} has no encoding")


def canonical(state: Any) -> bytes:
    """Equal states give equal bytes, regardless of the hash seed or the order of insertion."""
    return msgspec.json.encode(state, enc_hook=plain_map, order="deterministic")


def state_hash(state: Any) -> str:
    """Hex BLAKE2b of the canonical bytes."""
    return blake2b(canonical(state), digest_size=HASH_BYTES).hexdigest()
