"""The store of a service that keeps no rows: it has no account of PostgreSQL."""

from typing import Any, cast

from tunery.runtime.store.abstract import Store


class _AbsentStore:
    def __init__(self, service: str) -> None:
        self._service = service

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(
            f"{self._service} keeps no rows (schemas/access.py), so no store: {name}"
        )


def absent_store(service: str) -> Store:
    """A store whose every use is a defect. Raises RuntimeError then."""
    return cast("Store", _AbsentStore(service))
