"""Serving pools, in the stream `job`: so many replicas that answer, each held and billed by terms.

A serving pool is a standing wish. Each of its replicas is a row of terms: a term is one placement
with its own hold, like a job of one attempt. Its id is what `pool` and the ledger know as the
job. When a term drains, the next one is placed at once.
"""

from typing import TypeAlias

from schemas.account import Lane
from schemas.envelope import Message, Part, Reason
from schemas.model import Base
from schemas.pool import AttemptEnd, EndRequest, Placement
from schemas.submission import KeyCap, Price
from schemas.training import Device, NodeConstraints, WorkDescription
from schemas.units import GpuMs, Micro, Ms


class ReplicaTerms(Part):
    """Specification shared by all replicas of a serving pool."""

    base: Base  # the base model that it serves, with any adapters of it
    pool: str  # pool of nodes that it runs in
    slots: int  # number of slots that it occupies
    memory_bytes: int  # what one slot needs
    term_ms: Ms  # elapsed time after which the next term has to have its hold
    device: Device = "cpu"  # kind of device that every slot must be
    constraints: NodeConstraints | None = None  # constraints on nodes; None: any node


class ServingPoolTerms(Part):
    """Serving pool as a tenant requested it."""

    serving_pool_id: str
    replicas: int  # how many answer at the same time; 0: none, and the pool stays
    replica: ReplicaTerms  # specification of each replica. It never changes.
    # price of the plan when it was set. Each term has the price of the plan at its beginning.
    price: Price
    key_id: str | None = None  # the API key that requested it, None: not recorded
    cap: KeyCap | None = None  # spending cap of that key


# --- commands
class SetServingPool(Message):
    """A tenant wants a serving pool, or another number of replicas."""

    terms: ServingPoolTerms  # the serving pool


class RemoveServingPool(Message):
    """The tenant wants it no longer: its replicas drain."""

    serving_pool_id: str


# --- events
class ServingPoolSet(Message):
    """The serving pool is wanted like this from now on. Earlier failures count no more."""

    terms: ServingPoolTerms  # the serving pool
    lane: Lane  # lane of the plan when it was set


class ServingPoolRemoved(Message):
    """The serving pool is gone. Terms of it that are open end by themselves."""

    serving_pool_id: str


class ServingPoolStalled(Message):
    """A replica is missing, and no term begins for it. It is tried again when that may change."""

    serving_pool_id: str
    code: str  # one of `schemas.errors`
    reason: Reason  # why there is no term


class ServingTermBegun(Message):
    """A term of a replica has its hold, and asks for its slots."""

    serving_pool_id: str
    pool: str  # pool that is asked
    description: WorkDescription  # what the replica does
    placement: Placement  # what it asks for; its job id is the term's id
    hold_gpu_ms: GpuMs  # what is held: an upper bound that the term's use never passes
    price: Price  # what it is billed at: of the tenant's plan when the term begins
    price_max_micro: Micro  # highest price of the hold
    key_id: str | None = None  # the API key that it is charged to, None: to none


class ServingTermDraining(Message):
    """The term was asked to stop, by its cap or by `pool`: it takes no new questions."""

    term_id: str


class ServingTermUnwanted(Message):
    """Asks the pool to end a term."""

    term_id: str
    pool: str  # the pool that it was placed in
    request: EndRequest  # how it is to end


class ServingTermEnded(Message):
    """Settled: the term's hold is released, what was not used goes back."""

    term_id: str
    serving_pool_id: str
    pool: str  # pool where it was placed
    end: AttemptEnd  # how it ended
    released_gpu_ms: GpuMs  # what of the hold was not used


ServingCommand: TypeAlias = SetServingPool | RemoveServingPool
ServingEvent: TypeAlias = (
    ServingPoolSet
    | ServingPoolRemoved
    | ServingPoolStalled
    | ServingTermBegun
    | ServingTermDraining
    | ServingTermUnwanted
    | ServingTermEnded
)
