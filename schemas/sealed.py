"""Fields that can be erased although the log is kept for ever."""

from typing import Literal, TypeAlias

from msgspec import Struct

#: what a sealed text is; it is authenticated, so that one cannot be put in place of another
SealedField: TypeAlias = Literal[
    "actor",
    "authorization",
    "buyer",
    "by",
    "cause",
    "chat_template",
    "dataset",
    "detail",
    "endpoint",
    "eot_tokens",
    "grader",
    "integration",
    "measures",
    "metadata",
    "name",
    "prompts",
    "rendezvous",
    "suffix",
    "url",
]


class Sealed(Struct, frozen=True, gc=False):
    """Bytes under the tenant's data key (AES-256-GCM), opaque to every decider.

    Destroying the key erases the text everywhere; readers then get `REDACTED`.
    """

    key_id: str
    nonce: bytes
    ciphertext: bytes


REDACTED = "[redacted]"
