"""Messages of `pool` for a node that joins with a token and gets its keys.

The log has only a hash of the token. The keys are sealed to the node's own public key.
"""

from typing import Final, TypeAlias

from schemas.envelope import Message, Sha256
from schemas.units import Ms

# Regular expression of the id of a node that may send commands.
NODE_ID: Final = "[A-Za-z0-9._-]{1,128}"
PART_ID: Final = "[A-Za-z0-9._-]{1,63}"  # what an agent with several nodes appends to its id
PUBLIC_KEY: Final = "[0-9a-f]{64}"  # of X25519
INVITATION_MS_MAX: Final[Ms] = 7 * 24 * 3_600_000
USES_MAX: Final = 500  # of one token
MEMBER: Final = "-"  # between name and number in ids of nodes that share one token
SEALED_SETTINGS_MAX: Final = 16_384  # characters


# --- commands
class InviteNode(Message):
    """An operator has created a token for a node. The node's earlier token is void."""

    # node that may use it; with `uses`, the prefix of the ids of nodes that may
    node_id: str
    token_sha256: Sha256  # hash of the token
    valid_ms: Ms  # validity of the token
    # further settings of the node in Base64, encrypted with half of the token
    sealed_settings: str | None = None
    uses: int | None = None  # how many nodes may join with it; None: this node alone


class RevokeInvitation(Message):
    """An operator revokes a token: it gives no keys from now on."""

    node_id: str  # `node_id` of the invitation


class EnrolNode(Message):
    """A machine presents a token to get the keys of the node."""

    node_id: str  # the node that the machine claims to be
    token_sha256: Sha256  # hash of the token that it has sent
    public_key: str  # key to seal its keys to, in hexadecimal digits
    # prefix that a token for several nodes is for; None: the token is for this node
    invitation: str | None = None


class RecordNodeKeys(Message):
    """The scheduler has sealed the keys of a node that was enrolled."""

    node_id: str
    public_key: str  # key that they are sealed to
    sealed_keys: str  # sealed keys in Base64


# --- events
class NodeInvited(Message):
    """The node may use this token once, until the invitation ends."""

    node_id: str  # with `nodes_max`, the prefix of the nodes' ids
    token_sha256: Sha256  # hash of the token
    expires_at: Ms  # the end of the invitation
    # further settings of the node in Base64, encrypted with half of the token
    sealed_settings: str | None = None
    nodes_max: int | None = None  # how many nodes may join with it; None: this node alone
    invitation: str | None = None  # invitation of several nodes that this node uses


class InvitationRevoked(Message):
    """The token gives no keys from now on. Nodes that have their keys keep them."""

    node_id: str


class NodeEnrolled(Message):
    """The token was used: the node gets keys, and the token is void for others."""

    node_id: str
    public_key: str  # key that they are sealed to, in hexadecimal digits
    key_number: int  # number of the keys that it gets


class NodeKeysSealed(Message):
    """The keys of a node are sealed to the holder of the private key."""

    node_id: str
    public_key: str  # key that they are sealed to
    sealed_keys: str  # sealed keys in Base64


EnrolmentCommand: TypeAlias = InviteNode | RevokeInvitation | EnrolNode | RecordNodeKeys
EnrolmentEvent: TypeAlias = NodeInvited | InvitationRevoked | NodeEnrolled | NodeKeysSealed
