"""Nouns of API keys: terms and rotations."""

from schemas.envelope import Part, Sha256
from schemas.sealed import Sealed
from schemas.units import Micro, Ms


class KeyTerms(Part):
    """An API key as it is created: who it is for, what opens it, and what it allows.

    key_id: the key; never used again.
    name: what its tenant calls it.
    sha256: of its secret, which is kept nowhere.
    hint: the end of its secret, for people to tell keys apart.
    scopes: what it may do; at least one.
    expires_at: when it stops working, None: never.
    models: base models that its jobs may name, None: all.
    spend_cap_micro: what its jobs may cost in a calendar month (UTC), None: no cap of its own.
    requests_per_minute: its own limit, None: the tenant's.
    spend_cap_currency: of the cap; empty: that of whatever a job is priced in.
    """

    key_id: str
    name: Sealed
    sha256: Sha256
    hint: str
    scopes: tuple[str, ...]
    expires_at: Ms | None = None
    models: tuple[str, ...] | None = None
    spend_cap_micro: Micro | None = None
    requests_per_minute: int | None = None
    spend_cap_currency: str = ""


class KeyRotation(Part):
    """The new secret of an API key.

    sha256: of the new secret.
    hint: the end of the new secret.
    previous_until: until when the old secret works as well.
    """

    sha256: Sha256
    hint: str
    previous_until: Ms
