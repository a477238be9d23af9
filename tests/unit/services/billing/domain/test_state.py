"""What is left of a prepaid credit is what was neither used nor has expired."""

from schemas.billing import PrepaidCredit
from services.billing.domain.state import PrepaidBalance


def test_a_credit_is_what_was_used_has_expired_and_is_left() -> None:
    credit = PrepaidCredit(reference="P-1", amount_micro=10, currency="EUR")
    balance = PrepaidBalance(credit=credit, first_month="2026-11", used_micro=3, expired_micro=2)
    assert balance.left_micro == 5
