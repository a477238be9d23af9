"""Types that responses share. Each response is one class, from which JSON and OpenAPI come.

OpenAI's fields come first, in its order, then Tunery's. `/openapi.json` promises
these fields; later versions may have more.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, Literal, Self, TypeAlias, TypeVar

from msgspec import Struct, structs
from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, create_model

from schemas.records import shared_fields
from schemas.sealed import Sealed, SealedField
from schemas.units import Ms, divide_up

#: opens a sealed column; None for None, and for a text that was erased
Unseal: TypeAlias = Callable[[Sealed | None, SealedField], str | None]


class Response(BaseModel):
    """Base of all responses. A nested response may be given as the record it is made of."""

    model_config = ConfigDict(strict=True, frozen=True, from_attributes=True)

    @classmethod
    def of(cls, /, *sources: object, **values: Any) -> Self:
        """Build the response of records: a field comes from `values`, or else from the first source
        that has an attribute of its name.

        Raises pydantic.ValidationError for a field of another type and for one that is missing.
        """
        return cls.model_validate(shared_fields(cls.model_fields, sources, values))


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


Model = TypeVar("Model", bound=BaseModel)


def with_fields(**fields: Any) -> Callable[[type[Model]], type[Model]]:
    """Add fields to a model, each by its name: (type, default or `...`)."""

    def extended(model: type[Model]) -> type[Model]:
        return create_model(
            model.__name__,
            __base__=model,
            __module__=model.__module__,
            __doc__=model.__doc__,
            **fields,
        )

    return extended


def fields_of(record: type[Struct]) -> dict[str, Any]:
    """Fields for `with_fields` of a record: the model has the same ones, with their defaults."""
    return {
        field.name: (field.type, ... if field.required else field.default)
        for field in structs.fields(record)
    }


def seconds(at_ms: int) -> int:
    return at_ms // 1000


#: Unix time in milliseconds, as records have it; in seconds in JSON.
Seconds: TypeAlias = Annotated[Ms, PlainSerializer(seconds, return_type=int)]
E = TypeVar("E")
#: A list, made of the tuple that records have.
Items: TypeAlias = Annotated[
    list[E], BeforeValidator(lambda items: list(items) if isinstance(items, tuple) else items)
]
#: A text that records leave empty where there is none: null.
TextOrNone: TypeAlias = Annotated[str | None, BeforeValidator(lambda text: text or None)]


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
