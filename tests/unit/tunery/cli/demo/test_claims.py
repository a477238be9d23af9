"""A demo cannot succeed by leaving something out."""

import pytest

from tunery.cli.demo.claims import CLAIMS, DemoResult


def test_a_claim_that_was_never_checked_is_broken() -> None:
    result = DemoResult()
    assert not result.all_held
    for claim in CLAIMS[:-1]:
        result.check(claim, True)
    assert not result.all_held
    result.check(CLAIMS[-1], True)
    assert result.all_held


def test_a_failure_outweighs_every_claim() -> None:
    result = DemoResult(held=dict.fromkeys(CLAIMS, True), failure="Kafka went away")
    assert not result.all_held


def test_only_listed_claims_can_be_checked() -> None:
    with pytest.raises(KeyError, match="all_is_well"):
        DemoResult().check("all_is_well", True)
