"""How a node joins: an operator invites it, and it shows its token in the place of a key."""

import asyncio
import hmac
from collections import Counter
from typing import Final, Literal

from fastapi import Request

from schemas import errors
from schemas.enrolment import MEMBER, EnrolNode, InviteNode, RevokeInvitation
from schemas.reasons import refusing
from schemas.topics import POOL
from schemas.units import Ms
from services.gateway.accounts.auth import digest, fresh_secret
from services.gateway.jobs.domain.bodies import EnrolNodeRequest, InviteNodeRequest
from services.gateway.views.tables.jobs import INVITATIONS, NODES, InvitationRow
from services.gateway.web.deps import Admin, Deps, WithDeps
from services.gateway.web.domain.errors import UNAVAILABLE, ApiError, not_decided, refused
from services.gateway.web.domain.responses import ListItem, Page, Response, Seconds, listing
from services.gateway.web.routing import new_router
from services.gateway.wording import refusal_words

INVITATIONS_MAX: Final = 10_000
PARTS_MAX: Final = 16  # of a node's id between hyphens, that may be the name of several
TOKEN_PREFIX: Final = "tun-node-"  # noqa: S105  # only what tokens begin with
SEALED_MS_MAX: Final[Ms] = 5_000
POLL_MS: Final[Ms] = 20
router = new_router("nodes", "/v1")
open_router = new_router("nodes", "/v1", needs_key=False)


class NodeInvitationResponse(ListItem):
    """An invitation of a node, by the node's id. `enrolled_at`: when its token was used.

    `uses`: how many nodes may use the token, whose ids begin with this id and a hyphen; null: this
    node alone. `used`: how many have. `invitation`: the one of several nodes by which it came.

    `invited_by`: id of the API key. `key_number`: number of the keys that the node got, null: none
    yet. `keys_withdrawn`: number of its last key that is withdrawn, 0: none is.
    """

    id: str
    object: Literal["node.invitation"] = "node.invitation"
    pool: str
    invited_at: Seconds
    invited_by: str | None
    expires_at: Seconds
    enrolled_at: Seconds | None
    key_number: int | None
    keys_withdrawn: int
    uses: int | None
    used: int
    invitation: str | None


class NewNodeInvitationResponse(NodeInvitationResponse):
    """`token` is shown this once: `TUNERY_NODE_TOKEN` of the node's agent. It works once, or
    `uses` times.
    """

    token: str


class NodeKeysResponse(Response):
    """Keys of an enrolled node. `sealed_keys`: `TUNERY_COMMAND_KEYS` of the node in Base64, sealed
    to the holder of the private key.

    `sealed_settings`: further settings that an operator gives it, sealed to the holder of the
    token's second half, for `invitation`: the node, or the name of several.
    """

    object: Literal["node.keys"] = "node.keys"
    node_id: str
    sealed_keys: str
    sealed_settings: str | None
    invitation: str


@router.post("/nodes/{node_id}/invite")
async def invite_node(
    node_id: str, deps: WithDeps, admin: Admin, body: InviteNodeRequest | None = None
) -> NewNodeInvitationResponse:
    """Make a token with which this node gets its keys, once. An earlier one is void.

    With `uses` so many nodes may join by it, whose ids begin with this one and a hyphen.
    """
    asked = body or InviteNodeRequest()
    token = fresh_secret(deps, TOKEN_PREFIX)
    node = await deps.views.first(NODES, {"id": node_id})
    command = InviteNode(
        node_id=node_id,
        token_sha256=digest(token),
        valid_ms=asked.expires_in_seconds * 1_000,
        sealed_settings=asked.sealed_settings,
        uses=asked.uses,
    )
    actor = deps.seal.seal(admin.tenant, admin.key_id, "actor")
    pool = asked.pool if node is None else node.pool
    await deps.commands.decide(POOL, pool, command, actor=actor)
    row = await deps.views.first(INVITATIONS, {"id": node_id})
    if row is None:
        raise not_decided()
    return NewNodeInvitationResponse(**dict(invitation_response(deps, row)), token=token)


@router.post("/nodes/{node_id}/revoke")
async def revoke_invitation(node_id: str, deps: WithDeps, admin: Admin) -> NodeInvitationResponse:
    """Revoke a token of nodes. Nodes that have joined with it keep their keys."""
    row = await deps.views.first(INVITATIONS, {"id": node_id})
    if row is None:
        words = refusal_words(refusing("invitation_missing", node_id=node_id))
        raise refused(errors.NOT_FOUND, words, "node_id")
    actor = deps.seal.seal(admin.tenant, admin.key_id, "actor")
    await deps.commands.decide(POOL, row.pool, RevokeInvitation(node_id=node_id), actor=actor)
    revoked = await deps.views.first(INVITATIONS, {"id": node_id})
    return invitation_response(deps, revoked or row)


@router.get("/node_invitations")
async def list_node_invitations(deps: WithDeps, admin: Admin) -> Page[NodeInvitationResponse]:
    """List invitations that have not ended, by the node's id. There are no pages."""
    now = deps.clock.now_ms()
    rows = await deps.views.page(INVITATIONS, {}, limit=INVITATIONS_MAX, descending=False)
    used = Counter(row.invitation for row in rows)
    valid = [invitation_response(deps, row, used[row.id]) for row in rows if row.expires_at > now]
    return listing(Page[NodeInvitationResponse], valid, False)


@open_router.post("/nodes/{node_id}/enrol")
async def enrol_node(
    node_id: str, body: EnrolNodeRequest, request: Request, deps: WithDeps
) -> NodeKeysResponse:
    """Get the keys of a node for its token, sealed to a public key. No API key is needed.

    A token works once, or for as many nodes as it was made for. With the same public key it may be
    shown again until the invitation ends.
    """
    token_sha256 = digest(body.token)
    row = await _invitation(deps, node_id, token_sha256)
    if row.public_key != body.public_key or row.sealed_keys is None:
        command = EnrolNode(
            node_id=node_id,
            token_sha256=token_sha256,
            public_key=body.public_key,
            invitation=None if row.id == node_id else row.id,
        )
        await deps.commands.decide(POOL, row.pool, command)
    keys = await _sealed_keys(deps, node_id, body.public_key)
    request.state.enrolled_node = node_id
    several = None
    if row.invitation is not None:
        several = await deps.views.first(INVITATIONS, {"id": row.invitation})
    of = several or row
    return NodeKeysResponse(
        node_id=node_id,
        sealed_keys=keys,
        sealed_settings=of.sealed_settings,
        invitation=of.id,
    )


async def _invitation(deps: Deps, node_id: str, token_sha256: str) -> InvitationRow:
    """The invitation that a token is of, so that no other reaches the log. Raises ApiError 401.

    It is the node's own, or one of several nodes whose name its id begins with.
    """
    row = await deps.views.first(INVITATIONS, {"id": node_id})
    if row is None or not hmac.compare_digest(row.token_sha256, token_sha256):
        row = None
        parts = node_id.split(MEMBER)[:PARTS_MAX]
        for count in range(1, len(parts)):
            named = await deps.views.first(INVITATIONS, {"id": MEMBER.join(parts[:count])})
            if named is None or named.uses is None:
                continue
            if hmac.compare_digest(named.token_sha256, token_sha256):
                row = named
    if row is None:
        words = refusal_words(refusing("invitation_unknown", node_id=node_id))
        raise refused(errors.INVITATION_REFUSED, words, "token")
    if row.expires_at <= deps.clock.now_ms():
        words = refusal_words(refusing("invitation_expired", node_id=node_id))
        raise refused(errors.INVITATION_REFUSED, words, "token")
    return row


async def _sealed_keys(deps: Deps, node_id: str, public_key: str) -> str:
    """Wait for the keys that the scheduler has sealed. Raises ApiError 503 after SEALED_MS_MAX."""
    for _ in range(SEALED_MS_MAX // POLL_MS):
        row = await deps.views.first(INVITATIONS, {"id": node_id})
        if row is not None and row.public_key == public_key and row.sealed_keys is not None:
            return row.sealed_keys
        await asyncio.sleep(POLL_MS / 1_000)
    raise ApiError(
        503,
        UNAVAILABLE,
        "The keys of the node are not there yet. Send the same request again.",
        headers={"retry-after": "2"},
    )


def invitation_response(deps: Deps, row: InvitationRow, used: int = 0) -> NodeInvitationResponse:
    """used: how many nodes have joined by it, where it is one of several."""
    return NodeInvitationResponse.of(
        row,
        invited_by=deps.unseal(row.invited_by, "actor"),
        keys_withdrawn=row.keys_withdrawn or 0,
        used=used,
    )
