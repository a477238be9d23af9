"""Gives a node that was enrolled its keys, sealed to its public key.

The scheduler has what the keys of nodes follow from, and no other service has. What it seals
follows from the event alone, so that a reaction that is repeated is the same.
"""

import hmac
import logging
from base64 import b64encode
from typing import Final

from schemas.enrolment import NodeEnrolled, RecordNodeKeys
from schemas.envelope import Header
from schemas.pool import Event
from schemas.streams import KEY_NUMBER, NODE_PREFIX
from schemas.topics import POOL
from services.scheduler.react import react_pool
from tunery.platform.seal.boxes import seal_to
from tunery.runtime.bus.signing import SenderKeys, node_keys, write_keys
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.verbs import React, Send

LOG: Final = logging.getLogger("tunery.scheduler")


def reacting_with(keys: SenderKeys) -> React:
    """Reactions to `pool`, with those that need keys."""

    def react(header: Header, event: Event) -> tuple[Send, ...]:
        if isinstance(event, NodeEnrolled):
            return seal_keys(keys, header, event)
        return react_pool(header, event)

    return react


def seal_keys(keys: SenderKeys, header: Header, event: NodeEnrolled) -> tuple[Send, ...]:
    """The command that records the keys of the node; none where there are no keys, or no reader."""
    of_pool = keys.nodes.get(POOL.name)
    if of_pool is None:
        log_event(LOG, logging.ERROR, "node.keys_missing", node_id=event.node_id)
        return ()
    number = f"{KEY_NUMBER}{event.key_number}" if event.key_number > 1 else ""
    text = write_keys(node_keys(keys, f"{NODE_PREFIX}{event.node_id}{number}")).encode()
    seed = hmac.digest(of_pool, event.public_key.encode() + text, "sha256")
    try:
        box = seal_to(bytes.fromhex(event.public_key), text, seed)
    except ValueError as error:
        log_event(LOG, logging.ERROR, "node.public_key_unusable", node_id=event.node_id, why=error)
        return ()
    record = RecordNodeKeys(
        node_id=event.node_id,
        public_key=event.public_key,
        sealed_keys=b64encode(box).decode(),
    )
    return (Send("pool", header.key, header.tenant, record),)
