"""Resources: objects that the API lists and retrieves, each declared once.

    BUDGET = Resource(
        noun="budget", table=BUDGETS, response=MonthBudgetResponse, respond=budget_response
    )
    BUDGET.add_list(router, "/v1/budgets", "list_budgets", "List the tenant's budgets.")
    BUDGET.add_retrieve(router, "/v1/budgets/{budget_id}", "retrieve_budget", "A budget.")

The columns of a table come from its row, the fields of a response from its class, which
`Response.of` fills with the columns of the same names. So a field that is only stored and returned
stands in the row and in the response; routes, pages and OpenAPI follow. Commands are routes that
are written out.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Generic

from fastapi import APIRouter, Depends, Path, Query

from services.gateway.views.ports import Where
from services.gateway.views.table import R, Table
from services.gateway.web.deps import Admin, Caller, Deps, WithDeps
from services.gateway.web.domain.errors import not_found
from services.gateway.web.domain.responses import Page, T, listing
from services.gateway.web.pages import After, page

LIMIT_MAX: Final = 1_000


async def own_rows(caller: Caller) -> Where:
    """Rows of the caller's tenant."""
    return caller.rows


async def all_rows(_: Admin) -> Where:
    """Rows of all tenants, for operators."""
    return {}


async def shared_rows(_: Caller) -> Where:
    """Rows that belong to no tenant, for every caller."""
    return {}


async def no_filter() -> Where:
    return {}


def each(respond: Callable[[Deps, R], T]) -> Callable[[Deps, Sequence[R]], Awaitable[list[T]]]:
    """The `respond` of a resource whose rows need nothing of one another."""

    async def respond_each(deps: Deps, rows: Sequence[R]) -> list[T]:
        return [respond(deps, row) for row in rows]

    return respond_each


def each_in_turn(
    respond: Callable[[Deps, R], Awaitable[T]],
) -> Callable[[Deps, Sequence[R]], Awaitable[list[T]]]:
    """The `respond` of a resource of which each row is completed by a query of its own."""

    async def respond_in_turn(deps: Deps, rows: Sequence[R]) -> list[T]:
        return [await respond(deps, row) for row in rows]

    return respond_in_turn


@dataclass(frozen=True, kw_only=True)
class Resource(Generic[R, T]):
    """A kind of object that the API lists and retrieves."""

    noun: str  # its name in the message of a 404; `param` is the field that the error names
    table: Table[R]
    response: type[T]
    # makes the responses of rows, in their order
    respond: Callable[[Deps, Sequence[R]], Awaitable[list[T]]]
    # dependency of the routes that returns the columns by which a caller's rows are found; its
    # parameters are parameters of the routes. It raises ApiError 403 or 404.
    rows: Callable[..., Awaitable[Where]] = own_rows
    # dependency of the list alone, for further columns
    filters: Callable[..., Awaitable[Where]] = no_filter
    newest_first: bool = True
    limit: int = 100
    limit_max: int = LIMIT_MAX
    param: str = "id"

    @property
    def page(self) -> type[Page[T]]:
        """The class of the list's response."""
        return Page[self.response]  # type: ignore[name-defined]  # a class that the instance has

    async def find(self, deps: Deps, rows: Where, name: str, param: str = "") -> R:
        """The row with this id. Raises ApiError 404, which names `param` if it is given."""
        row = await deps.views.first(self.table, {**rows, "id": name})
        if row is None:
            raise not_found(self.noun, name, param or self.param)
        return row

    async def retrieve(self, deps: Deps, rows: Where, name: str) -> T:
        """The response of one object. Raises ApiError 404."""
        (response,) = await self.respond(deps, [await self.find(deps, rows, name)])
        return response

    def add_list(self, router: APIRouter, path: str, name: str, description: str) -> None:
        """Add the route that lists the resource in pages."""

        async def list_rows(
            deps: WithDeps,
            rows: Annotated[Where, Depends(self.rows)],
            filters: Annotated[Where, Depends(self.filters)],
            after: After = None,
            limit: Annotated[int, Query(ge=1, le=self.limit_max)] = self.limit,
        ) -> Page[T]:
            selected, more = await page(
                deps.views,
                self.table,
                {**rows, **filters},
                limit=limit,
                after=after,
                descending=self.newest_first,
            )
            return listing(self.page, await self.respond(deps, selected), more)

        router.add_api_route(
            path, list_rows, name=name, description=description, response_model=self.page
        )

    def add_retrieve(self, router: APIRouter, path: str, name: str, description: str = "") -> None:
        """Add the route that retrieves one object, whose id is the last parameter of the path."""
        parameter = path.rpartition("{")[2].rstrip("}")

        async def retrieve_row(
            deps: WithDeps,
            rows: Annotated[Where, Depends(self.rows)],
            object_id: Annotated[str, Path(alias=parameter)],
        ) -> T:
            return await self.retrieve(deps, rows, object_id)

        router.add_api_route(
            path, retrieve_row, name=name, description=description, response_model=self.response
        )
