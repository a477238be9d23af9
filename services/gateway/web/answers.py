"""The answers of routes in the API's document."""

from typing import Any


def says(model: Any, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """For `responses=`: the document's schema of an answer. Nothing is converted by it."""
    return {status: {"model": model}}
