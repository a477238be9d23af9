"""A story cannot end well by leaving something out."""

import pytest

from tunery.cli.demo.claims import CLAIMS, Told


def test_a_claim_that_was_never_reached_is_broken() -> None:
    told = Told()
    assert not told.all_held
    for claim in CLAIMS[:-1]:
        told.check(claim, True)
    assert not told.all_held
    told.check(CLAIMS[-1], True)
    assert told.all_held


def test_breaking_off_outweighs_every_claim() -> None:
    told = Told(held=dict.fromkeys(CLAIMS, True), trouble="Kafka went away")
    assert not told.all_held


def test_only_claims_of_the_list_can_be_made() -> None:
    with pytest.raises(KeyError, match="all_is_well"):
        Told().check("all_is_well", True)
