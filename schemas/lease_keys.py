"""Nouns of `pool`: how the agent of a lease gets the keys that its work needs, and no others.

The keys are sealed to a public key whose private half is in the agent's memory alone. Once the
agent has ended, keys on the log cannot be opened, so an erasure stays final.
"""

from typing import Final, TypeAlias

from schemas.envelope import Message, Part
from schemas.sealed import Sealed, SealedField

FOLDER: Final = "/"  # at the end of a path: what lies below it


class LeaseHolder(Part):
    """The agent that holds a member of a lease."""

    lease: int  # number of the lease in the pool
    # tenant, job_id, attempt: whose it is
    tenant: str
    job_id: str
    attempt: int
    # node_id, incarnation: the agent
    node_id: str
    incarnation: str


class NeededText(Part):
    """A sealed text of a lease's work."""

    field: SealedField  # what it is
    sealed: Sealed  # the text, under the data key of its tenant


class LeaseNeeds(Part):
    """Objects and texts of a tenant that the work of a lease has to decrypt or encrypt."""

    # keys of blobs to read; a key that ends in a slash covers all keys below it
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()  # prefixes of the keys to write, each with a slash at its end
    texts: tuple[NeededText, ...] = ()  # sealed texts in the description of its work


# --- commands
class RequestLeaseKeys(Message):
    """An agent begins to prepare a lease, and wants the keys that its work needs."""

    lease: int  # number of the lease in the pool
    incarnation: str  # incarnation of the agent that asks
    public_key: str  # what they are to be sealed to, in hexadecimal digits


class RecordLeaseKeys(Message):
    """A service that has the keys of tenants has sealed those of a lease."""

    # lease, incarnation, public_key: values of the request
    lease: int
    incarnation: str
    public_key: str
    sealed_keys: str  # sealed keys in Base64


# --- events
class LeaseKeysRequested(Message):
    """The lease is open, and its agent may have what its work needs."""

    holder: LeaseHolder  # the agent that asks
    public_key: str  # what the keys are to be sealed to, in hexadecimal digits
    needs: LeaseNeeds  # what the keys are to open, as the pool knows it


class LeaseKeysSealed(Message):
    """The keys of a lease are sealed to the holder of the private key."""

    holder: LeaseHolder  # the agent that has asked
    sealed_keys: str  # sealed keys in Base64


LeaseKeysCommand: TypeAlias = RequestLeaseKeys | RecordLeaseKeys
LeaseKeysEvent: TypeAlias = LeaseKeysRequested | LeaseKeysSealed
