"""Ports of the key store, the one state that is not a fold of the log, and of its root keys."""

from dataclasses import dataclass, field
from typing import Final, Protocol

from tunery.runtime.verbs import Outage

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


class KeyUnavailable(KeyStoreBroken, Outage):
    """A key cannot be had now: its data is not lost. Try again later."""


class RootUnavailable(KeyUnavailable):
    """The service that has a root key does not answer."""


class KeyAbsent(KeyUnavailable):
    """There is no file of a tenant's key, and this process may not make one.

    Its first request may be on its way, or the file on its way through a shared file system.
    """

    def __init__(self, tenant: str, folder: str) -> None:
        super().__init__(
            f"tenant {tenant} has no key in {folder} yet, and this service makes none: the gateway "
            "does. If that lasts, both do not share the folder (TUNERY_KEYSTORE_DIR)"
        )
        self.tenant = tenant


class RootRefused(KeyStoreBroken):
    """A root key does not unwrap a data key: access was withdrawn, or it is another root."""


class SealBroken(SealError):
    """A sealed field does not open with the key it names: the bytes or the key are wrong."""


@dataclass(frozen=True)
class DataKey:
    """One version of a tenant's key."""

    key_id: str  # name of this version
    secret: bytes = field(repr=False)  # KEY_BYTES random bytes


@dataclass(frozen=True)
class Keyring:
    """All versions of a tenant's data key, oldest first; there is at least one."""

    versions: tuple[DataKey, ...]

    @property
    def current(self) -> DataKey:
        """Newest version of the data key, which seals all that is written now."""
        return self.versions[-1]

    @property
    def first(self) -> DataKey:
        """Derived secrets follow from it, so that they do not change with a rotation."""
        return self.versions[0]

    def version(self, key_id: str) -> DataKey | None:
        """The version of this name; None for one that is not of this tenant."""
        return next((key for key in self.versions if key.key_id == key_id), None)


class KeyStore(Protocol):
    """Synchronous and fast (microseconds once a key was read): it is called for every field.

    Every method raises KeyStoreBroken; where a root key is needed, RootUnavailable, RootRefused.
    A store whose process may not make keys raises KeyAbsent for what another one would make, so
    None says "destroyed" there and nothing else.
    """

    def get(self, tenant: str) -> Keyring | None:
        """The tenant's key, made at the first call; None once it was destroyed.

        Several processes that ask at the same time get the same key. Raises KeyAbsent.
        """

    def find(self, tenant: str) -> Keyring | None:
        """The tenant's key if there is one; never makes one. Raises KeyAbsent."""

    def rotate(self, tenant: str) -> Keyring | None:
        """Add a version, which all processes use from their next call on; earlier ones stay.

        None where the key was destroyed.
        """

    def destroy(self, tenant: str) -> None:
        """Forget all versions for ever, in all processes. Repeats are harmless."""


class RootKey(Protocol):
    """A key that wraps data keys and never leaves its owner: a file, Vault, a KMS.

    Synchronous: a process asks it once for each tenant, and then every `KEPT_S` seconds.
    `context` is authenticated: what was wrapped with one does not unwrap with another.
    """

    def wrap(self, secret: bytes, context: bytes) -> str:
        """Wrap with the newest version, which the text names. Raises RootUnavailable, RootRefused,
        KeyStoreBroken.
        """

    def unwrap(self, wrapped: str, context: bytes) -> bytes:
        """Raises RootUnavailable, RootRefused, KeyStoreBroken."""

    def rotate(self) -> None:
        """Make a new version, which wraps from now on; earlier ones still unwrap.

        Raises RootUnavailable, RootRefused, KeyStoreBroken.
        """

    def forget(self) -> None:
        """Let go of all versions but the newest: what they wrapped never unwraps again.

        Raises RootUnavailable, RootRefused, KeyStoreBroken.
        """
