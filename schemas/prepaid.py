"""Messages of `account` about prepaid credits."""

from typing import TypeAlias

from schemas.billing import PrepaidCredit
from schemas.envelope import Message
from schemas.units import Micro


# --- commands
class GrantPrepaid(Message):
    """The tenant has paid in advance."""

    credit: PrepaidCredit  # its `reference` must be new


class RevokePrepaid(Message):
    """A prepaid credit was recorded by mistake: its balance becomes void."""

    reference: str  # the credit


# --- events
class PrepaidGranted(Message):
    """The tenant has a prepaid credit."""

    credit: PrepaidCredit
    first_month: str  # the first month whose invoice it may pay


class PrepaidExpired(Message):
    """The last month of a prepaid credit is closed: its balance expires."""

    reference: str  # the credit
    amount_micro: Micro  # expired balance


class PrepaidRevoked(Message):
    """A prepaid credit was revoked: its balance is void; what it has paid stays paid."""

    reference: str  # the credit
    amount_micro: Micro  # void balance


PrepaidCommand: TypeAlias = GrantPrepaid | RevokePrepaid
PrepaidEvent: TypeAlias = PrepaidGranted | PrepaidExpired | PrepaidRevoked
