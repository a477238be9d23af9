"""Orders to a process that has trained, and what it says about itself.

A training that is started as `GOES_ON` says `ENDED` once it has finished, and waits for an order,
as a JSON line on its standard input: the evaluation of its job. It says `BEGUN` once it has taken
it.
"""

from typing import Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

WarmModule: TypeAlias = Literal["tunery.ml.train", "tunery.ml.train_and_score", "tunery.ml.score"]
WARM_MODULES: Final[tuple[str, ...]] = get_args(WarmModule)
TRAIN: Final[WarmModule] = "tunery.ml.train"
GOES_ON: Final[WarmModule] = "tunery.ml.train_and_score"
SCORE: Final[WarmModule] = "tunery.ml.score"
BEGUN: Final = b"begun\n"
ENDED: Final = b"ended\n"
#: how long a training that has ended waits for its evaluation. Its result is stored in that time.
WAIT_S: Final = 60


class Order(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One piece of work."""

    module: WarmModule  # module whose process it becomes
    spec: str  # path of the spec, the process's only argument
    folder: str  # its working directory


def encode_order(order: Order) -> bytes:
    """The order as a line."""
    return msgspec.json.encode(order) + b"\n"


def decode_order(line: bytes) -> Order:
    """The order in a line. Raises msgspec.MsgspecError."""
    return msgspec.json.decode(line, type=Order)
