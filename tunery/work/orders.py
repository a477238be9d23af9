"""Modules of work, and the order to a training to go on as the evaluation of its job.

A training that is started as `GOES_ON` says `ENDED` once it has finished, and waits for an order,
as a JSON line on its standard input. It says `BEGUN` once it has taken it.
"""

from typing import Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

WorkModule: TypeAlias = Literal["tunery.ml.train", "tunery.ml.train_and_score", "tunery.ml.score"]
WORK_MODULES: Final[tuple[str, ...]] = get_args(WorkModule)
TRAIN: Final[WorkModule] = "tunery.ml.train"
GOES_ON: Final[WorkModule] = "tunery.ml.train_and_score"
SCORE: Final[WorkModule] = "tunery.ml.score"
BEGUN: Final = b"begun\n"
ENDED: Final = b"ended\n"
#: how long a training that has ended waits for its evaluation. Its result is stored in that time.
WAIT_S: Final = 60


class Order(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An evaluation."""

    spec: str  # path of the spec
    folder: str  # its working directory


def encode_order(order: Order) -> bytes:
    """The order as a line."""
    return msgspec.json.encode(order) + b"\n"


def decode_order(line: bytes) -> Order:
    """The order in a line. Raises msgspec.MsgspecError."""
    return msgspec.json.decode(line, type=Order)
