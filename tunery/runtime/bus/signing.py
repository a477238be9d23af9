"""Signatures of records: the bytes end with the sender's name and an HMAC, which readers check.

Keys derive from one secret (HMAC-SHA256): a stream's key from the secret, a sender's key from the
stream's. So a sender can prove only its own name, and only on the streams that it sends to; the
owner of a stream knows the keys of all its senders, and may write all of its journal anyway.

Keys of nodes derive from an intermediate key, which the scheduler has. So it can issue the keys of
nodes without the keys of streams that it does not own.

A node whose key was withdrawn gets another one: its name as a sender is then `node.ID#2`.
"""

import hmac
import re
from typing import Final

import msgspec
from msgspec import Struct

from schemas.streams import NODE_PREFIX
from schemas.units import Ms

PRINCIPAL: Final = re.compile(r"[a-z]{1,64}|node\.[A-Za-z0-9._-]{1,128}(#([2-9]|[1-9][0-9]{1,3}))?")
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
    """Keys with which a process signs records as one sender, and verifies records of others."""

    sender: str = ""  # name that it signs with; empty: nothing is signed or checked
    # the sender's key for each stream that it sends to, by name of the stream
    own: dict[str, bytes] = {}
    # the stream's key for each stream that it owns, with the topics of nodes that it reads
    checked: dict[str, bytes] = {}
    secret: bytes = b""  # the root from which all keys derive; only operators have it
    signed_since: Ms = 0  # records with an earlier broker timestamp are accepted unsigned
    # for each stream that nodes send to, the key from which the nodes' keys derive
    nodes: dict[str, bytes] = {}

    def sign(self, stream: str, record: bytes) -> bytes:
        """The record, an object of JSON, with sender and proof. Raises KeyError without a key."""
        if not self.sender:
            return record
        named = record[:-1] + _SENDER + self.sender.encode() + b'"'
        return named + _SIGNATURE + _proof(self._own(stream), stream, named) + _END

    def sender_of(self, stream: str, record: bytes, at: Ms) -> str | None:
        """Return the verified sender of a record; None if it is not checked. Raises Unproven.

        at: broker timestamp of the record.
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

    def box_key(self, stream: str) -> bytes:
        """Return the private key that opens what is sealed to this sender. Raises KeyError."""
        return hmac.digest(self._own(stream), b"box", _HASH)

    def can_sign(self, stream: str) -> bool:
        """Return whether there is a key for this stream; keys of an earlier version lack some."""
        return bool(self.secret) or stream in self.own

    def can_check(self, stream: str) -> bool:
        """Return whether senders on this stream can be verified."""
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
    """Return the key from which the keys of all nodes on a stream derive."""
    return hmac.digest(of_stream, _OF_NODES, _HASH)


def operator_keys(secret: bytes, sender: str = "", signed_since: Ms = 0) -> SenderKeys:
    """Keys of a process that may know all of them."""
    return SenderKeys(sender, {}, {}, secret, signed_since)


def node_keys(keys: SenderKeys, sender: str) -> SenderKeys:
    """Return the keys of a node, made with `nodes` alone; without it there are none."""
    of_nodes = keys.nodes.items()
    return SenderKeys(
        sender, {name: hmac.digest(key, sender.encode(), _HASH) for name, key in of_nodes}
    )


def read_keys(text: str) -> SenderKeys:
    """Keys as `write_keys` writes them. Raises ValueError."""
    keys = msgspec.json.decode(text, type=SenderKeys)
    if not keys.secret and not keys.own:
        raise ValueError("no keys")
    return keys


def write_keys(keys: SenderKeys) -> str:
    """Encode keys as one line of JSON."""
    return msgspec.json.encode(keys).decode()


def _is_proven(key: bytes, stream: str, named: bytes, tail: bytes) -> bool:
    return hmac.compare_digest(_SIGNATURE + _proof(key, stream, named) + _END, tail)


def _proof(key: bytes, stream: str, named: bytes) -> bytes:
    return hmac.digest(key, stream.encode() + b"\0" + named, _HASH).hex().encode()
