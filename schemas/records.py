"""Records that are made of other records with the same fields."""

from collections.abc import Iterable
from typing import Any, TypeVar

from msgspec import Struct

S = TypeVar("S", bound=Struct)


def build_from(kind: type[S], /, *sources: object, **values: Any) -> S:
    """Build a record: a field comes from `values`, or else from the first source that has it.

    For blocks of fields that mean the same in both. Raises TypeError for a field without a default
    that none of them has.
    """
    return kind(**shared_fields(kind.__struct_fields__, sources, values))


def shared_fields(
    names: Iterable[str], sources: tuple[object, ...], values: dict[str, Any]
) -> dict[str, Any]:
    """`values`, and the other fields of these names that sources have; the first source wins."""
    for name in names:
        if name not in values:
            for source in sources:
                if hasattr(source, name):
                    values[name] = getattr(source, name)
                    break
    return values
