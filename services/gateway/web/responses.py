"""Types that responses share. Each response is one class, from which JSON and OpenAPI come.

OpenAI's fields come first, in its order, then Tunery's. `docs/reference/openapi.json` promises
these fields; later versions may have more.
"""

from collections.abc import Callable, Sequence
from typing import Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict

from schemas.sealed import Sealed, SealedField
from schemas.units import divide_up

#: opens a sealed column; None for None, and for a text that was erased
Unseal: TypeAlias = Callable[[Sealed | None, SealedField], str | None]


class Response(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class ListItem(Response):
    """Base of the items of lists."""

    id: str | None


T = TypeVar("T", bound=ListItem)


class Page(Response, Generic[T]):
    object: Literal["list"] = "list"
    data: list[T]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Deleted(Response):
    id: str
    object: str
    deleted: Literal[True] = True


def seconds(at_ms: int) -> int:
    return at_ms // 1000


def seconds_or_none(at_ms: int | None) -> int | None:
    return None if at_ms is None else at_ms // 1000


def seconds_up(at_ms: int | None) -> int | None:
    """A moment that is not over, in seconds: rounded up."""
    return None if at_ms is None else divide_up(at_ms, 1000)


def listing(page: type[Page[T]], data: Sequence[T], has_more: bool) -> Page[T]:
    return page(
        data=list(data),
        first_id=data[0].id if data else None,
        last_id=data[-1].id if data else None,
        has_more=has_more,
    )
