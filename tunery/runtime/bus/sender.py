"""Sends commands to a stream from outside its owner: one at a time, durably appended."""

from collections.abc import Callable, Mapping

import msgspec

from schemas.envelope import FIRST_LEVEL, Envelope, Idempotency, Message, Source
from schemas.ids import reaction_id
from schemas.levels import level_of
from schemas.sealed import Sealed
from schemas.streams import Stream
from tunery.runtime.bus.abstract import LevelTooLow, Log
from tunery.runtime.bus.signing import UNSIGNED, SenderKeys
from tunery.runtime.ids import NewId, new_id
from tunery.runtime.telemetry.trail import current_trail


class Sender:
    """Wraps a command in an envelope and appends it to the commands topic of its stream.

    streams: those that commands are sent to, by name; fresh_id: makes ids of commands.
    keys: keys that prove the name of this process.
    """

    def __init__(
        self,
        log: Log,
        streams: Mapping[str, Stream],
        fresh_id: NewId = new_id,
        keys: SenderKeys = UNSIGNED,
        level_of_stream: Callable[[str], int] = lambda _: FIRST_LEVEL,
    ) -> None:
        """level_of_stream: to which level operators have raised a stream."""
        self._log, self._streams, self._fresh_id = log, streams, fresh_id
        self._keys, self._level_of_stream = keys, level_of_stream

    async def send(
        self,
        stream: Stream | str,
        key: str,
        tenant: str,
        body: Message,
        *,
        command_id: str | None = None,
        idempotency: Idempotency | None = None,
        partition: int | None = None,
        source: Source | None = None,
        actor: Sealed | None = None,
        causation: str | None = None,
        correlation: str | None = None,
        traceparent: str | None = None,
    ) -> str:
        """Append the command to the stream that owns `key`; return its id.

        The id follows from `source`; without one it is `command_id`, or a fresh UUID.
        It follows from the request of this task (`trail_context`), unless the caller names another.
        Raises Unavailable, its LevelTooLow, or TooLarge (nothing was sent), AppendUnknown (it may
        be decided later).
        """
        target = self._streams[stream] if isinstance(stream, str) else stream
        level, needed = self._level_of_stream(target.name), level_of(body)
        if needed > level:
            raise LevelTooLow(needed, level)
        trail = current_trail()
        envelope = Envelope(
            id=command_id or self._fresh_id() if source is None else reaction_id(source),
            key=key,
            tenant=tenant,
            body=msgspec.Raw(msgspec.json.encode(body)),
            source=source,
            idempotency=idempotency,
            actor=actor,
            causation=causation,
            correlation=correlation or trail.correlation,
            traceparent=traceparent or trail.traceparent,
        )
        signed = self._keys.sign(target.name, msgspec.json.encode(envelope))
        await self._log.send(target.commands.name, key.encode(), signed, partition)
        return envelope.id
