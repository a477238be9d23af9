"""Fresh identifiers: the only randomness of the runtime, as a port."""

from collections.abc import Callable
from typing import TypeAlias
from uuid import uuid4

NewId: TypeAlias = Callable[[], str]


def new_id() -> str:
    """A random UUID in canonical form."""
    return str(uuid4())
