"""Senders of commands in place of services that a test does not run."""

from typing import Any

from schemas.streams import NODE_PREFIX, Stream
from schemas.topics import STREAMS
from tunery.local.stack import Stack
from tunery.runtime.bus.abstract import Log
from tunery.runtime.bus.sender import Sender


def peer_of(stack: Stack, log: Log, stream: Stream, body: Any, node_id: str = "") -> Sender:
    """The sender of a service that may send this command, or of a node where nodes do."""
    services = [permit.sender for permit in stream.permits if type(body) in permit.commands]
    principal = f"{NODE_PREFIX}{node_id}" if services == ["trainer"] else services[0]
    return Sender(log, STREAMS, keys=stack.settings.keys.sender_keys(principal))
