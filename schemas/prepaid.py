"""Messages of `account` about prepaid credits."""

from typing import TypeAlias

from schemas.billing import PrepaidCredit
from schemas.envelope import Message
from schemas.units import Micro


# --- commands
class GrantPrepaid(Message):
    """The tenant has paid in advance."""

    credit: PrepaidCredit  # what; its reference is used once


class RevokePrepaid(Message):
    """A prepaid credit was recorded by mistake: its remainder pays nothing."""

    reference: str  # the credit


# --- events
class PrepaidGranted(Message):
    """The tenant has a prepaid credit."""

    credit: PrepaidCredit  # what was paid in advance
    first_month: str  # the first month whose invoice it may pay


class PrepaidExpired(Message):
    """Nothing is left of a prepaid credit: its last month is closed."""

    reference: str  # the credit
    amount_micro: Micro  # remaining amount


class PrepaidRevoked(Message):
    """A prepaid credit was revoked: its balance is void, and what it has paid stays paid."""

    reference: str  # the credit
    amount_micro: Micro  # balance that was left


PrepaidCommand: TypeAlias = GrantPrepaid | RevokePrepaid
PrepaidEvent: TypeAlias = PrepaidGranted | PrepaidExpired | PrepaidRevoked
