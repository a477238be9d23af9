"""Nouns of API keys: terms and rotations."""

from schemas.envelope import Part, Sha256
from schemas.sealed import Sealed
from schemas.units import Micro, Ms


class KeyTerms(Part):
    """Terms of an API key: its name, the hash of its secret, and what it allows."""

    key_id: str  # never reused
    name: Sealed  # the tenant's name for it
    sha256: Sha256  # hash of its secret, which is stored nowhere
    hint: str  # the end of its secret, for people to tell keys apart
    scopes: tuple[str, ...]  # what it may do; at least one
    expires_at: Ms | None = None  # when it stops working, None: never
    models: tuple[str, ...] | None = None  # base models that its jobs may name, None: all
    # what its jobs may cost in a calendar month (UTC), None: no cap of its own
    spend_cap_micro: Micro | None = None
    requests_per_minute: int | None = None  # its own limit, None: the tenant's
    spend_cap_currency: str = ""  # currency of the cap; empty: the currency of each job


class KeyRotation(Part):
    """The new secret of an API key."""

    sha256: Sha256  # hash of the new secret
    hint: str  # the end of the new secret
    previous_until: Ms  # end of the time in which the old secret works as well
