"""Nouns of `pool`: how the agent of a lease gets the keys that its work needs, and no others.

What it gets is sealed to a public key whose private half is in the agent's memory alone, so keys on
the log open for nobody once the agent has ended, and an erasure stays final.
"""

from typing import Final, TypeAlias

from schemas.envelope import Message, Part
from schemas.sealed import Sealed, SealedField

FOLDER: Final = "/"  # at the end of a path: what lies below it


class LeaseHolder(Part):
    """The agent that holds a member of a lease.

    lease: number of the lease in the pool.
    tenant, job_id, attempt: whose it is.
    node_id, incarnation: the agent.
    """

    lease: int
    tenant: str
    job_id: str
    attempt: int
    node_id: str
    incarnation: str


class NeededText(Part):
    """A sealed text of a lease's work.

    field: what it is.
    sealed: the text, under the data key of its tenant.
    """

    field: SealedField
    sealed: Sealed


class LeaseNeeds(Part):
    """What the work of a lease opens and writes of its tenant.

    reads: keys of blobs; one that ends in a slash is all below it.
    writes: the beginnings of keys below which it writes, each with a slash at its end.
    texts: what its work says, sealed.
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    texts: tuple[NeededText, ...] = ()


# --- commands
class RequestLeaseKeys(Message):
    """An agent begins to prepare a lease, and wants the keys that its work needs.

    lease: number of the lease in the pool.
    incarnation: of the agent that asks.
    public_key: what they are to be sealed to, in hexadecimal digits.
    """

    lease: int
    incarnation: str
    public_key: str


class RecordLeaseKeys(Message):
    """A service that has the keys of tenants has sealed those of a lease.

    lease, incarnation, public_key: as they were asked for.
    sealed_keys: in Base64.
    """

    lease: int
    incarnation: str
    public_key: str
    sealed_keys: str


# --- events
class LeaseKeysRequested(Message):
    """The lease is open, and its agent may have what its work needs.

    holder: the agent that asks.
    public_key: what the keys are to be sealed to, in hexadecimal digits.
    needs: what the keys are to open, as the pool knows it.
    """

    holder: LeaseHolder
    public_key: str
    needs: LeaseNeeds


class LeaseKeysSealed(Message):
    """The keys of a lease are there, for whoever has the private key alone.

    holder: the agent that has asked.
    sealed_keys: in Base64.
    """

    holder: LeaseHolder
    sealed_keys: str


LeaseKeysCommand: TypeAlias = RequestLeaseKeys | RecordLeaseKeys
LeaseKeysEvent: TypeAlias = LeaseKeysRequested | LeaseKeysSealed
