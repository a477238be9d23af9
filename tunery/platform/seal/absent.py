"""The key store of a service that opens and seals no texts of tenants."""

from typing import NoReturn


class NoKeys:
    """Implements `KeyStore`. Every use is a defect, and raises RuntimeError."""

    def __init__(self, service: str) -> None:
        self._service = service

    def get(self, tenant: str) -> NoReturn:
        self._refuse(tenant)

    def find(self, tenant: str) -> NoReturn:
        self._refuse(tenant)

    def rotate(self, tenant: str) -> NoReturn:
        self._refuse(tenant)

    def destroy(self, tenant: str) -> NoReturn:
        self._refuse(tenant)

    def _refuse(self, tenant: str) -> NoReturn:
        raise RuntimeError(f"{self._service} has no keys of tenants (schemas/access.py): {tenant}")
