"""Rows of the read models as objects of the API. Field by field as OpenAI has them, then ours."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Any]
Opened: TypeAlias = Callable[[Any], str | None]  # a sealed column → its text; null stays null


def seconds(at_ms: int | None) -> int | None:
    return None if at_ms is None else at_ms // 1000


def listing(data: Sequence[Mapping[str, Any]], has_more: bool) -> dict[str, Any]:
    return {
        "object": "list",
        "data": list(data),
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }


def deleted(kind: str, identifier: str) -> dict[str, Any]:
    return {"id": identifier, "object": kind, "deleted": True}
