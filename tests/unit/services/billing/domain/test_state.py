"""Balance of a prepaid credit: its amount without what was used and what has expired."""

from schemas.billing import PrepaidCredit
from services.billing.domain.state import PrepaidBalance


def test_used_expired_and_remaining_amount_add_up_to_the_credit() -> None:
    credit = PrepaidCredit(reference="P-1", amount_micro=10, currency="EUR")
    balance = PrepaidBalance(credit=credit, first_month="2026-11", used_micro=3, expired_micro=2)
    assert balance.left_micro == 5
