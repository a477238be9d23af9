"""Settings of the gateway: what is kept, and no less than is safe."""

import pytest
from pydantic import ValidationError

from services.gateway.settings import GatewaySettings


def test_rows_are_kept_for_a_time_and_never_for_less_than_is_safe() -> None:
    assert tuple(GatewaySettings().days_kept) == (90, 400, 90, 1_096)
    for name in ("keep_steps_days", "keep_history_days", "keep_deliveries_days", "keep_audit_days"):
        with pytest.raises(ValidationError):
            GatewaySettings.model_validate({name: 1})
