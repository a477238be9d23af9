"""Port to the ledger, from which a month's bill is made."""

from collections.abc import Mapping
from typing import Protocol

from schemas.account import PeriodEnded
from schemas.billing import Statement
from tunery.billing.periods import BillShare, Cut


class Books(Protocol):
    """The ledger of usage, and the bills made of it."""

    async def reached(self) -> Cut:
        """Return the positions in the pool's journal up to which the ledger is complete."""

    async def stored(self) -> Mapping[tuple[str, int], int]:
        """Return the offsets up to which stored bytes are known, by stream and partition."""

    async def statement(self, tenant: str, ended: PeriodEnded, share: BillShare) -> Statement:
        """Make the bills of the month of `share`. Raises PriceMissing."""
