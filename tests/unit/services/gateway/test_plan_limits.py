"""Limits of plans, and the setting that changes them."""

import pytest
from pydantic import ValidationError

from services.gateway.plan_limits import PLAN_LIMITS
from services.gateway.settings import GatewaySettings


def test_a_setting_of_limits_names_only_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNERY_GATEWAY_PLAN_LIMITS", '{"free": {"files_max": 7}}')
    limits = GatewaySettings().plan_limits
    assert limits["free"] == PLAN_LIMITS["free"].model_copy(update={"files_max": 7})
    assert limits["premium"] == PLAN_LIMITS["premium"]


@pytest.mark.parametrize(
    "wrong",
    ['{"free": {"file_max": 7}}', '{"gold": {"files_max": 7}}', '{"free": {"files_max": -1}}', "7"],
)
def test_limits_that_cannot_be_are_refused(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNERY_GATEWAY_PLAN_LIMITS", wrong)
    with pytest.raises(ValidationError, match="plan_limits"):
        GatewaySettings()
