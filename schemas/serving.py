"""Serving pools, in the stream `job`: so many replicas that answer, each held and billed by terms.

A serving pool is a standing wish. Each of its replicas is a row of terms: a term is one placement
with a hold of its own, like a job of one attempt. Its id is what `pool` and the ledger know as the
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
    """What every replica of a serving pool is.

    base: the base model that it serves, with any adapters of it.
    pool: where it runs.
    slots: how many it holds at the same time.
    memory_bytes: what one slot needs.
    term_ms: elapsed time after which the next term has to have its hold.
    device: kind of device that every slot must be.
    constraints: which nodes it may run on, None: any.
    """

    base: Base
    pool: str
    slots: int
    memory_bytes: int
    term_ms: Ms
    device: Device = "cpu"
    constraints: NodeConstraints | None = None


class ServingPoolTerms(Part):
    """What a tenant wants to be served by.

    serving_pool_id: the serving pool.
    replicas: how many answer at the same time; 0: none, and the pool stays.
    replica: what each of them is. It never changes.
    price: what terms that begin from now on are held and billed at.
    key_id: the API key that wants it, None: the writer did not say.
    cap: of that key.
    """

    serving_pool_id: str
    replicas: int
    replica: ReplicaTerms
    price: Price
    key_id: str | None = None
    cap: KeyCap | None = None


# --- commands
class SetServingPool(Message):
    """A tenant wants a serving pool, or another number of replicas.

    terms: the serving pool.
    """

    terms: ServingPoolTerms


class RemoveServingPool(Message):
    """The tenant wants it no longer: its replicas drain.

    serving_pool_id: the serving pool.
    """

    serving_pool_id: str


# --- events
class ServingPoolSet(Message):
    """The serving pool is wanted like this from now on. Earlier failures count no more.

    terms: the serving pool.
    lane: service class of the terms that begin from now on.
    """

    terms: ServingPoolTerms
    lane: Lane


class ServingPoolRemoved(Message):
    """The serving pool is gone. Terms of it that are open end by themselves.

    serving_pool_id: the serving pool.
    """

    serving_pool_id: str


class ServingPoolStalled(Message):
    """A replica is missing, and no term begins for it. It is tried again when that may change.

    serving_pool_id: the serving pool.
    code: one of `schemas.errors`.
    reason: why there is no term.
    """

    serving_pool_id: str
    code: str
    reason: Reason


class ServingTermBegun(Message):
    """A term of a replica has its hold, and asks for its slots.

    serving_pool_id: the serving pool.
    pool: pool that is asked.
    description: what the replica does.
    placement: what it asks for; its job id is the term's id.
    hold_gpu_ms: what is held: an upper bound that the term's use never passes.
    price: what it is billed at.
    price_max_micro: of the hold.
    key_id: the API key that it is charged to, None: to none.
    """

    serving_pool_id: str
    pool: str
    description: WorkDescription
    placement: Placement
    hold_gpu_ms: GpuMs
    price: Price
    price_max_micro: Micro
    key_id: str | None = None


class ServingTermDraining(Message):
    """The term was told to stop, by its cap or by `pool`: it takes no new questions.

    term_id: the term.
    """

    term_id: str


class ServingTermUnwanted(Message):
    """Asks the pool to end a term.

    term_id: the term.
    pool: the pool that it was placed in.
    request: how it is to end.
    """

    term_id: str
    pool: str
    request: EndRequest


class ServingTermEnded(Message):
    """Settled: the term's hold is released, what was not used goes back.

    term_id: the term.
    serving_pool_id: the serving pool.
    pool: where it was placed.
    end: how it ended.
    released_gpu_ms: what of the hold was not used.
    """

    term_id: str
    serving_pool_id: str
    pool: str
    end: AttemptEnd
    released_gpu_ms: GpuMs


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
