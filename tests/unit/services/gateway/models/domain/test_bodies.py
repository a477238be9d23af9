"""Bodies of requests about models: looks of a policy."""

import pytest
from pydantic import ValidationError

from services.gateway.models.domain.bodies import GatePolicyRequest


def test_looks_rise_to_all_items() -> None:
    assert GatePolicyRequest().looks == [0.25, 0.5, 1]
    assert GatePolicyRequest(looks=[0.4, 1]).looks == [0.4, 1]


@pytest.mark.parametrize("looks", [[0.5], [0.5, 0.5, 1], [1, 0.5], [], [0.01, 1]])
def test_looks_that_do_not_are_refused(looks: list[float]) -> None:
    with pytest.raises(ValidationError, match="looks"):
        GatePolicyRequest(looks=looks)
