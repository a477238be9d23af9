"""Who sends a record: its bytes end with the sender's name and a proof, which the reader checks.

Keys follow from one secret (HMAC-SHA256): that of a stream from the secret, that of a sender from
the stream's. So a sender can prove its own name alone, on the streams that it sends to; the owner
of a stream knows the keys of all its senders, and may write all of its journal anyway.

Those of nodes follow from another key between, which the scheduler has. So it can give nodes their
keys without the keys of streams that it does not own.

A node whose key was withdrawn gets another one: its name as a sender is then `node.ID#2`.
"""

import hmac
import re
from typing import Final

import msgspec
from msgspec import Struct

from schemas.topics import HEARTBEATS, POOL, SERVICES, STREAMS, TELEMETRY
from schemas.units import Ms
from tunery.runtime.bus.grants import NODE, NODE_PREFIX, service_of

PRINCIPAL: Final = re.compile(r"[a-z]{1,64}|node\.[A-Za-z0-9._-]{1,128}(#([2-9]|[1-9][0-9]{1,3}))?")
NODES: Final = HEARTBEATS.name
OF_NODES: Final = (HEARTBEATS, TELEMETRY)  # signed like commands, by nodes
SECRET_BYTES_MIN: Final = 32  # of an operator's own secret
_HASH: Final = "sha256"
_OF_NODES: Final = NODE_PREFIX.encode()
_SENDER: Final = b',"sender":"'
_SIGNATURE: Final = b',"signature":"'
_END: Final = b'"}'
_DIGITS: Final = 64
_TAIL: Final = len(_SIGNATURE) + _DIGITS + len(_END)


class Unproven(Exception):
    """The record has no proof of its sender, or a wrong one."""


class SenderKeys(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a process proves its name with, and checks those of others.

    sender: as whom it sends; empty: nothing is signed or checked.
    own: its key for each stream that it sends to; checked: the key of each stream that it owns. A
      topic of OF_NODES is a stream, too, and its reader the owner.
    secret: of an operator, from which all keys follow.
    signed_since: records of an earlier broker time are taken as they are.
    nodes: what the keys of all nodes follow from, for each stream that nodes send to.
    """

    sender: str = ""
    own: dict[str, bytes] = {}
    checked: dict[str, bytes] = {}
    secret: bytes = b""
    signed_since: Ms = 0
    nodes: dict[str, bytes] = {}

    def sign(self, stream: str, record: bytes) -> bytes:
        """The record, an object of JSON, with sender and proof. Raises KeyError without a key."""
        if not self.sender:
            return record
        named = record[:-1] + _SENDER + self.sender.encode() + b'"'
        return named + _SIGNATURE + _proof(self._own(stream), stream, named) + _END

    def sender_of(self, stream: str, record: bytes, at: Ms) -> str | None:
        """Who has sent a record; None where it is not checked. Raises Unproven.

        at: its broker time.
        """
        if not self.sender or at < self.signed_since:
            return None
        named, tail = record[:-_TAIL], record[-_TAIL:]
        name = named[named.rfind(_SENDER) + len(_SENDER) : -1]
        of_stream = self._checked(stream)
        if not _is_proven(sender_key(of_stream, name), stream, named, tail):
            former = hmac.digest(of_stream, name, _HASH)  # an earlier version printed it
            if not name.startswith(_OF_NODES) or not _is_proven(former, stream, named, tail):
                raise Unproven
        return name.decode("ascii")

    def can_sign(self, stream: str) -> bool:
        """Whether there is a key; those that an earlier version printed lack some."""
        return bool(self.secret) or stream in self.own

    def can_check(self, stream: str) -> bool:
        """Whether senders on a stream can be checked."""
        return bool(self.secret) or stream in self.checked

    def _own(self, stream: str) -> bytes:
        if stream not in self.own and self.secret:
            self.own[stream] = sender_key(self._checked(stream), self.sender.encode())
        return self.own[stream]

    def _checked(self, stream: str) -> bytes:
        if stream not in self.checked and self.secret:
            self.checked[stream] = stream_key(self.secret, stream)
        return self.checked[stream]


UNSIGNED: Final = SenderKeys()


def stream_key(secret: bytes, stream: str) -> bytes:
    """The key of a stream, for its owner."""
    return hmac.digest(secret, b"commands/" + stream.encode(), _HASH)


def sender_key(of_stream: bytes, sender: bytes) -> bytes:
    """The key by which a sender proves its name on a stream, for this sender."""
    if sender.startswith(_OF_NODES):
        of_stream = nodes_key(of_stream)
    return hmac.digest(of_stream, sender, _HASH)


def nodes_key(of_stream: bytes) -> bytes:
    """What the keys of all nodes on a stream follow from, for who gives nodes their keys."""
    return hmac.digest(of_stream, _OF_NODES, _HASH)


def operator_keys(secret: bytes, sender: str = "", signed_since: Ms = 0) -> SenderKeys:
    """Keys of a process that may know all of them."""
    return SenderKeys(sender, {}, {}, secret, signed_since)


def keys_of(secret: bytes, sender: str, signed_since: Ms = 0) -> SenderKeys:
    """What a principal needs: the keys of what it sends, and of the streams that it owns.

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


def node_keys(keys: SenderKeys, sender: str) -> SenderKeys:
    """The keys of a node, as `keys_of` makes them, by who has `nodes`; None are made of others."""
    of_nodes = keys.nodes.items()
    return SenderKeys(
        sender, {name: hmac.digest(key, sender.encode(), _HASH) for name, key in of_nodes}
    )


def _sent_by(service: str) -> list[str]:
    """Streams, and topics of nodes, that a service sends to."""
    sent = [stream.name for stream in STREAMS.values() if service in stream.senders]
    return [*sent, *(topic.name for topic in OF_NODES if service in topic.writers)]


def read_keys(text: str) -> SenderKeys:
    """Keys as `write_keys` writes them. Raises ValueError."""
    keys = msgspec.json.decode(text, type=SenderKeys)
    if not keys.secret and not keys.own:
        raise ValueError("no keys")
    return keys


def write_keys(keys: SenderKeys) -> str:
    """As one line of text."""
    return msgspec.json.encode(keys).decode()


def _is_proven(key: bytes, stream: str, named: bytes, tail: bytes) -> bool:
    return hmac.compare_digest(_SIGNATURE + _proof(key, stream, named) + _END, tail)


def _proof(key: bytes, stream: str, named: bytes) -> bytes:
    return hmac.digest(key, stream.encode() + b"\0" + named, _HASH).hex().encode()
