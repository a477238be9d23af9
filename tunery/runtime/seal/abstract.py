"""Port of the key store: the one state that is not a fold of the log."""

from dataclasses import dataclass, field
from typing import Final, Protocol

KEY_BYTES: Final = 32


class SealError(Exception):
    """Base of what sealing raises."""


class KeyDestroyed(SealError):
    """The tenant's data was erased: nothing can be derived from its key any more."""

    def __init__(self, tenant: str) -> None:
        super().__init__(f"the data key of tenant {tenant} was destroyed; its data is erased")
        self.tenant = tenant


class KeyStoreBroken(SealError):
    """A key cannot be read or written; the message names the file and the fix."""


class SealBroken(SealError):
    """A sealed field does not open with the key it names: the bytes or the key are wrong."""


@dataclass(frozen=True)
class DataKey:
    """`secret`: KEY_BYTES random bytes. `key_id` names this generation of the tenant's key."""

    key_id: str
    secret: bytes = field(repr=False)


class KeyStore(Protocol):
    """Synchronous and fast (microseconds once a key was read): it is called for every field."""

    def get(self, tenant: str) -> DataKey | None:
        """The tenant's key, made at the first call; None once it was destroyed.

        Several processes that ask at the same time get the same key. Raises KeyStoreBroken.
        """

    def find(self, tenant: str) -> DataKey | None:
        """The tenant's key if there is one; never makes one. Raises KeyStoreBroken."""

    def destroy(self, tenant: str) -> None:
        """Forget the key for ever, in all processes. Repeats are harmless."""
