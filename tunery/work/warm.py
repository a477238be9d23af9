"""What a warm process is told: which piece of work it becomes.

A warm process, `python -m tunery.ml.warm`, has imported all that work needs and waits. It gets one
order, as a JSON line on its standard input, and says `BEGUN` once it has taken it.
"""

from typing import Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

WarmModule: TypeAlias = Literal["tunery.ml.train", "tunery.ml.score"]
WARM_MODULES: Final[tuple[str, ...]] = get_args(WarmModule)
BEGUN: Final = b"begun\n"


class Order(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One piece of work.

    module: whose process it becomes
    spec: that process's only argument
    folder: its working directory
    """

    module: WarmModule
    spec: str
    folder: str


def encode_order(order: Order) -> bytes:
    """The order as a line."""
    return msgspec.json.encode(order) + b"\n"


def decode_order(line: bytes) -> Order:
    """The order in a line. Raises msgspec.MsgspecError."""
    return msgspec.json.decode(line, type=Order)
