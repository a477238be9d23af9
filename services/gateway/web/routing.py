"""Routers whose routes the application takes as they are.

FastAPI looks through an included router twice for a request, and makes each of its routes a second
time. So what an inclusion would add is given to each router when it is made.
"""

from typing import Final

from fastapi import APIRouter, Depends
from fastapi.security import HTTPBearer

from services.gateway.web.problems import ERRORS

# only for the OpenAPI document: keys are checked in `web.edge`, before any route
KEY: Final = HTTPBearer(auto_error=False, scheme_name="API key")


def new_router(tag: str, prefix: str = "", *, needs_key: bool = True) -> APIRouter:
    """A router whose routes are documented with their tag, the API's errors and its key."""
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        dependencies=[Depends(KEY)] if needs_key else [],
        responses=dict(ERRORS),
        generate_unique_id_function=lambda route: route.name,
    )
