"""Nouns of `pool`: how a node joins with a token that is used once, and gets its keys.

The token itself is on no log. What the node gets is sealed to a public key of its own.
"""

from typing import Final, TypeAlias

from schemas.envelope import Message, Sha256
from schemas.units import Ms

# The id of a node that may be a sender, as a regular expression.
NODE_ID: Final = "[A-Za-z0-9._-]{1,128}"
PUBLIC_KEY: Final = "[0-9a-f]{64}"  # of X25519
INVITATION_MS_MAX: Final[Ms] = 7 * 24 * 3_600_000
SEALED_SETTINGS_MAX: Final = 16_384  # characters


# --- commands
class InviteNode(Message):
    """An operator has made a token for a node. An earlier one of the node is void.

    node_id: the node that may use it.
    token_sha256: of the token.
    valid_ms: for how long.
    sealed_settings: what else the node gets, in Base64, for who has the token's second half.
    """

    node_id: str
    token_sha256: Sha256
    valid_ms: Ms
    sealed_settings: str | None = None


class EnrolNode(Message):
    """Somebody shows a token, and wants keys of the node.

    node_id: the node that it says it is.
    token_sha256: of the token that it has sent.
    public_key: what its keys are to be sealed to, in hexadecimal digits.
    """

    node_id: str
    token_sha256: Sha256
    public_key: str


class RecordNodeKeys(Message):
    """The scheduler has sealed the keys of a node that was enrolled.

    node_id: the node.
    public_key: what they are sealed to.
    sealed_keys: in Base64.
    """

    node_id: str
    public_key: str
    sealed_keys: str


# --- events
class NodeInvited(Message):
    """The node may use this token once, until the invitation ends.

    node_id: the node.
    token_sha256: of the token.
    expires_at: the end of the invitation.
    sealed_settings: what else the node gets, in Base64, for who has the token's second half.
    """

    node_id: str
    token_sha256: Sha256
    expires_at: Ms
    sealed_settings: str | None = None


class NodeEnrolled(Message):
    """The token was used: the node gets keys, and nobody else does with this token.

    node_id: the node.
    public_key: what they are sealed to, in hexadecimal digits.
    key_number: of the keys that it gets.
    """

    node_id: str
    public_key: str
    key_number: int


class NodeKeysSealed(Message):
    """The keys of a node are there, for whoever has the private key alone.

    node_id: the node.
    public_key: what they are sealed to.
    sealed_keys: in Base64.
    """

    node_id: str
    public_key: str
    sealed_keys: str


EnrolmentCommand: TypeAlias = InviteNode | EnrolNode | RecordNodeKeys
EnrolmentEvent: TypeAlias = NodeInvited | NodeEnrolled | NodeKeysSealed
