"""Keys of each principal, computed from the catalogue of topics. `signing` says how they derive."""

from typing import Final

from schemas.streams import NODE, NODE_PREFIX, service_of
from schemas.topics import HEARTBEATS, POOL, RELEASES, SERVICES, STREAMS, TELEMETRY
from schemas.units import Ms
from tunery.runtime.bus.signing import PRINCIPAL, SenderKeys, nodes_key, sender_key, stream_key

NODES: Final = HEARTBEATS.name
OF_NODES: Final = (HEARTBEATS, TELEMETRY)  # signed like commands, by nodes


def keys_of(secret: bytes, sender: str, signed_since: Ms = 0) -> SenderKeys:
    """Return the keys of a principal: of the streams that it sends to, and of those that it owns.

    Raises ValueError for a name that no sender can have.
    """
    service = service_of(sender)
    if PRINCIPAL.fullmatch(sender) is None or service not in SERVICES:
        raise ValueError(
            f"{sender!r} is no sender: use one of {', '.join(SERVICES)}, or for a node "
            f"{NODE_PREFIX!r} and its id of letters, digits, '.', '_' and '-', with '#2' behind it "
            "for its second key"
        )
    sent = _sent_by(service)
    owned = [stream.name for stream in STREAMS.values() if service == stream.owner]
    owned += [topic.name for topic in OF_NODES if service in topic.readers]
    return SenderKeys(
        sender,
        {name: sender_key(stream_key(secret, name), sender.encode()) for name in sent},
        {name: stream_key(secret, name) for name in owned},
        b"",
        signed_since,
        {name: nodes_key(stream_key(secret, name)) for name in _sent_by(NODE)}
        if service == POOL.owner
        else {},
    )


def _sent_by(service: str) -> list[str]:
    """Streams, topics of nodes, and of releases, that a service sends to."""
    sent = [stream.name for stream in STREAMS.values() if service in stream.senders]
    return [*sent, *(topic.name for topic in (*OF_NODES, RELEASES) if service in topic.writers)]
