"""Messages of `account` about prepaid credits."""

from typing import TypeAlias

from schemas.billing import PrepaidCredit
from schemas.envelope import Message
from schemas.units import Micro


# --- commands
class GrantPrepaid(Message):
    """The tenant has paid in advance.

    credit: what; its reference is used once.
    """

    credit: PrepaidCredit


class RevokePrepaid(Message):
    """A prepaid credit was recorded by mistake: what is left of it shall pay nothing.

    reference: the credit.
    """

    reference: str


# --- events
class PrepaidGranted(Message):
    """The tenant has a prepaid credit.

    credit: what was paid in advance.
    first_month: the first month whose invoice it may pay.
    """

    credit: PrepaidCredit
    first_month: str


class PrepaidExpired(Message):
    """Nothing is left of a prepaid credit: its last month is closed.

    reference: the credit.
    amount_micro: that was left.
    """

    reference: str
    amount_micro: Micro


class PrepaidRevoked(Message):
    """What was left of a prepaid credit pays nothing any more; what it has paid stays paid.

    reference: the credit.
    amount_micro: that was left.
    """

    reference: str
    amount_micro: Micro


PrepaidCommand: TypeAlias = GrantPrepaid | RevokePrepaid
PrepaidEvent: TypeAlias = PrepaidGranted | PrepaidExpired | PrepaidRevoked
