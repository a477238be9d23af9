"""Invitations of nodes: who has a token gets the keys of a node, before the invitation ends.

A token is for one node, or for as many as the operator says; then their ids begin with its name.

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
    MEMBER,
    NODE_ID,
    PUBLIC_KEY,
    USES_MAX,
    EnrolmentCommand,
    EnrolmentEvent,
    EnrolNode,
    InvitationRevoked,
    InviteNode,
    NodeEnrolled,
    NodeInvited,
    NodeKeysSealed,
    RecordNodeKeys,
    RevokeInvitation,
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
        case RevokeInvitation():
            return _revoke(pool, command, ctx)
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
    if command.uses is not None and not 0 < command.uses <= USES_MAX:
        uses = refusing("invitation_uses_out_of_range", limit=USES_MAX)
        return reject(errors.MALFORMED, uses, "uses")
    if _are_too_many(pool, command.node_id, ctx):
        return reject(errors.QUOTA_EXCEEDED, refusing("invitations_at_most", limit=INVITATIONS_MAX))
    invited = NodeInvited(
        node_id=command.node_id,
        token_sha256=command.token_sha256,
        expires_at=ctx.at + command.valid_ms,
        sealed_settings=command.sealed_settings,
        nodes_max=command.uses,
    )
    return (invited,)


def _are_too_many(pool: Pool, node_id: str, ctx: Context) -> bool:
    """Return whether a pool has no room for an invitation of this node."""
    others = (known for name, known in pool.invitations.items() if name != node_id)
    return sum(known.expires_at > ctx.at for known in others) >= INVITATIONS_MAX


def _revoke(pool: Pool, command: RevokeInvitation, ctx: Context) -> tuple[Event, ...]:
    """Revoke an invitation; one that has ended stays as it is."""
    invitation = pool.invitations.get(command.node_id)
    if invitation is None:
        missing = refusing("invitation_missing", node_id=command.node_id)
        return reject(errors.NOT_FOUND, missing, "node_id")
    if invitation.expires_at <= ctx.at:
        return ()
    return (InvitationRevoked(node_id=command.node_id),)


def _enrol(pool: Pool, key_number: int, command: EnrolNode, ctx: Context) -> tuple[Event, ...]:
    """Enrol a node by its token. A repeat with the same public key changes nothing."""
    node_id, public_key = command.node_id, command.public_key
    invitation = pool.invitations.get(node_id)
    if command.invitation is not None and invitation is None:
        return _join(pool, key_number, command.invitation, command, ctx)
    if (
        invitation is None
        or invitation.uses is not None
        or not _is_same(invitation.token_sha256, command.token_sha256)
    ):
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


def _join(
    pool: Pool, key_number: int, name: str, command: EnrolNode, ctx: Context
) -> tuple[Event, ...]:
    """Invite and enrol a node that joins with a token for several nodes.

    From then on the token is its own as well, for the public key that it has shown. It cannot be
    one that joined in another way: who has the token must not get the keys of others.
    """
    node_id, invitation = command.node_id, pool.invitations.get(name)
    before, _, own = node_id.partition(f"{name}{MEMBER}")
    if (
        invitation is None
        or invitation.uses is None
        or before
        or not own
        or not _is_same(invitation.token_sha256, command.token_sha256)
    ):
        return _refuse(refusing("invitation_unknown", node_id=node_id))
    if invitation.expires_at <= ctx.at:
        return _refuse(refusing("invitation_expired", node_id=name))
    if re.fullmatch(NODE_ID, node_id) is None:
        return reject(errors.MALFORMED, refusing("node_id_malformed"), "node_id")
    if re.fullmatch(PUBLIC_KEY, command.public_key) is None:
        return reject(errors.MALFORMED, refusing("public_key_malformed"), "public_key")
    if node_id in pool.nodes:
        return _refuse(refusing("node_id_taken", node_id=node_id))
    if invitation.used >= invitation.uses:
        return _refuse(refusing("invitation_used_up", node_id=name, limit=invitation.uses))
    if _are_too_many(pool, node_id, ctx):
        return reject(errors.QUOTA_EXCEEDED, refusing("invitations_at_most", limit=INVITATIONS_MAX))
    invited = NodeInvited(
        node_id=node_id,
        token_sha256=invitation.token_sha256,
        expires_at=invitation.expires_at,
        invitation=name,
    )
    enrolled = NodeEnrolled(node_id=node_id, public_key=command.public_key, key_number=key_number)
    return (invited, enrolled)


def _seal(pool: Pool, command: RecordNodeKeys) -> tuple[Event, ...]:
    """Record sealed keys of a node; ignored if its invitation was replaced meanwhile."""
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
                uses=event.nodes_max,
            )
            kept = _kept_at(pool, ctx.at).set(event.node_id, invited)
            several = None if event.invitation is None else kept.get(event.invitation)
            if event.invitation is not None and several is not None:
                kept = kept.set(event.invitation, replace(several, used=several.used + 1))
            return replace(pool, invitations=kept)
        case InvitationRevoked():
            invitation = pool.invitations.get(event.node_id)
            if invitation is None:
                return pool
            ended = replace(invitation, expires_at=ctx.at)
            return replace(pool, invitations=pool.invitations.set(event.node_id, ended))
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
