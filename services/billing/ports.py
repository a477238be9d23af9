"""Port to the ledger, from which a month's bill is made."""

from typing import Protocol

from schemas.account import PeriodEnded, Statement
from services.billing.domain.periods import BillShare, Cut


class Books(Protocol):
    """The ledger of usage, and the bills made of it."""

    async def reached(self) -> Cut:
        """For each partition of the pool's journal, the first offset not in the ledger yet."""

    async def statement(self, tenant: str, ended: PeriodEnded, share: BillShare) -> Statement:
        """The bill of the month that `share` is of. Raises PriceMissing, Mixed."""
