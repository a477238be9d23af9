"""Fields that can be erased although the log is kept for ever."""

from msgspec import Struct


class Sealed(Struct, frozen=True, gc=False):
    """Bytes under the tenant's data key (AES-256-GCM), opaque to every decider.

    Destroying the key erases the text everywhere; readers then get `REDACTED`.
    """

    key_id: str
    nonce: bytes
    ciphertext: bytes


REDACTED = "[redacted]"
