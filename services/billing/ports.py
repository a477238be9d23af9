"""Port to the ledger, from which a month's bill is made."""

from collections.abc import Mapping
from typing import Protocol

from schemas.account import (
    PeriodEnded,
)
from schemas.billing import (
    Statement,
)
from tunery.billing.periods import BillShare, Cut


class Books(Protocol):
    """The ledger of usage, and the bills made of it."""

    async def reached(self) -> Cut:
        """Up to where the ledger has the pool's journal."""

    async def stored(self) -> Mapping[tuple[str, int], int]:
        """Up to which offset it is known what tenants keep, by stream and partition."""

    async def statement(self, tenant: str, ended: PeriodEnded, share: BillShare) -> Statement:
        """The bills of the month that `share` is of. Raises PriceMissing."""
