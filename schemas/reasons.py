"""Codes of the reasons on the logs. The gateway makes words of them; no log holds prose.

A code keeps its meaning for ever; new ones may be added. Each function takes the codes of one use,
so that a misspelt code is a type error.
"""

from typing import Literal, TypeAlias

from schemas.envelope import Reason

# Why a job or a placement waits, or what it does in its phase.
WaitCode: TypeAlias = Literal[
    "file_validation",  # the training file is being validated
    "inputs_preparation",  # the dataset is being prepared, the base model pinned
    "inputs_not_ready",  # resumed before file, dataset or base model were ready
    "placement",  # the pool is asked for a place
    "paused",  # by its tenant
    "node_preparation",  # a node fetches the inputs
    "draining",  # told to stop: finishes its step and writes a checkpoint
    "scoring",  # base model and adapter are being scored
    "judging",  # the scores are being judged
    "publishing",  # the adapter is being published
    "no_node_up",  # no node of the pool is up
    "no_capacity",  # slots: every node that fits is busy
    "gang_too_large",  # slots: more than the pool can ever give
    "excluded_nodes",  # nodes: all that fit have failed under this job
    "lane_order",  # others are before it in its lane or in a higher one
    "reservation",  # free slots are reserved for a job before it
    "topology",  # free slots are not close enough to each other
    "price_class",  # only slots of another price class are free
    "quota",  # its tenant uses all that it may
    "budget",  # its budget is used up until the next period
]
# Why an attempt was ended, beside who ended it (`EndAuthor`).
EndCode: TypeAlias = Literal[
    "cancelled",  # the tenant cancelled the job
    "paused",  # the tenant paused the job
    "preempted",  # another job needs the slots
    "cap_reached",  # the use that its hold allows is up
    "exited",  # its process ended by itself
    "withdrawn",  # it left the queue before it had a lease
    "node_lost",  # its node was silent for longer than the TTL
    "node_replaced",  # an agent with a new incarnation registered for its node
    "node_left",  # its node left in order
    "start_timeout",  # it did not start in time
    "exit_unreported",  # it was killed, and its agent did not report the exit in time
    "exit_missing",  # its agent freed the slots without reporting an exit
    "no_progress",  # its process lived and did nothing
    "work_unknown",  # it named a work that was never described
]
# Why a checkpoint could not be used.
SkipCode: TypeAlias = Literal[
    "blob_missing",  # a file is not in object storage
    "blob_corrupt",  # a file has another hash than its name says
    "unusable",  # the process could not load it
]


def waiting(code: WaitCode, **params: str | int) -> Reason:
    """Why a job or a placement waits, or what it does in its phase."""
    return Reason(code=code, params=params)


def ending(code: EndCode, **params: str | int) -> Reason:
    """Why an attempt was ended."""
    return Reason(code=code, params=params)


def skipping(code: SkipCode, **params: str | int) -> Reason:
    """Why a checkpoint could not be used."""
    return Reason(code=code, params=params)
