"""Invitations of nodes: who has a token gets the keys of a node, once, before the invitation ends.

The decider sees hashes of tokens alone. It says which keys a node gets; they are made and sealed by
the scheduler (`services/scheduler/enrolling.py`), and come back as a command.
"""

import hmac
import re
from typing import Final, assert_never

from immutables import Map
from msgspec.structs import replace

from schemas import errors
from schemas.enrolment import (
    INVITATION_MS_MAX,
    NODE_ID,
    PUBLIC_KEY,
    EnrolmentCommand,
    EnrolmentEvent,
    EnrolNode,
    InviteNode,
    NodeEnrolled,
    NodeInvited,
    NodeKeysSealed,
    RecordNodeKeys,
)
from schemas.envelope import Context, Reason, reject
from schemas.pool import Event
from schemas.reasons import refusing
from schemas.streams import agent_of
from schemas.topics import RESERVED_NODE_IDS
from schemas.units import Ms
from services.scheduler.domain.pool.state import Invitation, Pool

INVITATIONS_MAX: Final = 1_000  # of a pool at a time


def decide_enrolment(
    pool: Pool, withdrawn: Map[str, int], command: EnrolmentCommand, ctx: Context
) -> tuple[Event, ...]:
    """Decide on an invitation, a presented token, or sealed keys.

    withdrawn: number of the last withdrawn key, by node id.
    """
    match command:
        case InviteNode():
            return _invite(pool, command, ctx)
        case EnrolNode():
            return _enrol(pool, withdrawn.get(command.node_id, 0) + 1, command, ctx)
        case RecordNodeKeys():
            return _seal(pool, command)
        case _:
            assert_never(command)


def _invite(pool: Pool, command: InviteNode, ctx: Context) -> tuple[Event, ...]:
    if re.fullmatch(NODE_ID, command.node_id) is None:
        return reject(errors.MALFORMED, refusing("node_id_malformed"), "node_id")
    if command.node_id.casefold() in RESERVED_NODE_IDS:
        reserved = refusing("node_id_reserved", node_id=command.node_id)
        return reject(errors.MALFORMED, reserved, "node_id")
    if not 0 < command.valid_ms <= INVITATION_MS_MAX:
        term = refusing("invitation_out_of_range", limit_ms=INVITATION_MS_MAX)
        return reject(errors.MALFORMED, term, "expires_in_seconds")
    others = (known for name, known in pool.invitations.items() if name != command.node_id)
    if sum(known.expires_at > ctx.at for known in others) >= INVITATIONS_MAX:
        return reject(errors.QUOTA_EXCEEDED, refusing("invitations_at_most", limit=INVITATIONS_MAX))
    invited = NodeInvited(
        node_id=command.node_id,
        token_sha256=command.token_sha256,
        expires_at=ctx.at + command.valid_ms,
        sealed_settings=command.sealed_settings,
    )
    return (invited,)


def _enrol(pool: Pool, key_number: int, command: EnrolNode, ctx: Context) -> tuple[Event, ...]:
    """Shown again with the same public key, as after a lost answer, a token changes nothing."""
    node_id, public_key = command.node_id, command.public_key
    invitation = pool.invitations.get(node_id)
    if invitation is None or not _is_same(invitation.token_sha256, command.token_sha256):
        return _refuse(refusing("invitation_unknown", node_id=node_id))
    if invitation.expires_at <= ctx.at:
        return _refuse(refusing("invitation_expired", node_id=node_id))
    if re.fullmatch(PUBLIC_KEY, public_key) is None:
        return reject(errors.MALFORMED, refusing("public_key_malformed"), "public_key")
    if invitation.public_key is None:
        return (NodeEnrolled(node_id=node_id, public_key=public_key, key_number=key_number),)
    if invitation.public_key != public_key:
        return _refuse(refusing("invitation_used", node_id=node_id))
    return ()


def _seal(pool: Pool, command: RecordNodeKeys) -> tuple[Event, ...]:
    """Keys of an invitation that was replaced meanwhile are of no use to anybody."""
    invitation = pool.invitations.get(command.node_id)
    if invitation is None or invitation.public_key != command.public_key:
        return ()
    sealed = NodeKeysSealed(
        node_id=command.node_id, public_key=command.public_key, sealed_keys=command.sealed_keys
    )
    return (sealed,)


def with_enrolment(pool: Pool, event: EnrolmentEvent, ctx: Context) -> Pool:
    """The pool after an event of an invitation. Those that have ended are dropped with the next.

    One that gave keys stays until the node has registered with them: until then nothing else says
    which keys there are to withdraw.
    """
    match event:
        case NodeInvited():
            before = pool.invitations.get(event.node_id)
            invited = Invitation(
                token_sha256=event.token_sha256,
                expires_at=event.expires_at,
                key_number=0 if before is None else before.key_number,
            )
            return replace(pool, invitations=_kept_at(pool, ctx.at).set(event.node_id, invited))
        case NodeEnrolled():
            invitation = pool.invitations.get(event.node_id)
            if invitation is None:
                return pool
            used = replace(invitation, public_key=event.public_key, key_number=event.key_number)
            return replace(pool, invitations=pool.invitations.set(event.node_id, used))
        case NodeKeysSealed():
            return pool
        case _:
            assert_never(event)


def enrolled_number(pool: Pool, node_id: str) -> int:
    """Number of the last keys that a node got with a token; 0: none."""
    invitation = pool.invitations.get(node_id)
    return 0 if invitation is None else invitation.key_number


def _kept_at(pool: Pool, at: Ms) -> Map[str, Invitation]:
    registered: dict[str, int] = {}  # number of the keys that an agent has registered with
    for node_id, node in pool.nodes.items():
        agent = agent_of(node_id)
        registered[agent] = max(registered.get(agent, 0), node.key_number)
    return Map(
        {
            name: known
            for name, known in pool.invitations.items()
            if known.expires_at > at or known.key_number > registered.get(name, 0)
        }
    )


def _refuse(reason: Reason) -> tuple[Event, ...]:
    return reject(errors.INVITATION_REFUSED, reason, "token")


def _is_same(known: str, shown: str) -> bool:
    return hmac.compare_digest(known.encode(), shown.encode())
