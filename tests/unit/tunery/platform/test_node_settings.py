"""Settings for a node open for that node alone, with the second half of its token."""

from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.enrolment import SEALED_SETTINGS_MAX
from tunery.platform.node_settings import halves_of, open_settings, seal_settings
from tunery.platform.seal.abstract import SealBroken

pytestmark = pytest.mark.security

VARIABLES = {"TUNERY_KAFKA_PASSWORD": "p=ä", "TUNERY_S3_SECRET_KEY": ""}


def test_what_is_sealed_opens_for_its_node_alone() -> None:
    sealed = seal_settings("n", "half", VARIABLES)
    assert open_settings("n", "half", sealed) == VARIABLES
    assert sealed != seal_settings("n", "half", VARIABLES)
    for node_id, half in (("m", "half"), ("n", "other"), ("n", "")):
        with pytest.raises(SealBroken):
            open_settings(node_id, half, sealed)


@given(st.integers(min_value=0), st.integers(1, 255))
def test_a_changed_byte_is_noticed(number: int, change: int) -> None:
    box = bytearray(b64decode(seal_settings("n", "half", VARIABLES)))
    box[number % len(box)] ^= change
    with pytest.raises(SealBroken):
        open_settings("n", "half", b64encode(box).decode())


@pytest.mark.parametrize("sealed", ["", "AAAA", "no Base64", b64encode(bytes(40)).decode()])
def test_what_is_no_box_is_refused(sealed: str) -> None:
    with pytest.raises(SealBroken):
        open_settings("n", "half", sealed)


def test_only_variables_of_servers_are_given_and_not_too_many() -> None:
    with pytest.raises(ValueError, match="LD_PRELOAD: only TUNERY_KAFKA_ and TUNERY_S3_"):
        seal_settings("n", "half", {**VARIABLES, "LD_PRELOAD": "x"})
    with pytest.raises(ValueError, match="at most"):
        seal_settings("n", "half", {"TUNERY_S3_BUCKET": "x" * SEALED_SETTINGS_MAX})


def test_a_token_has_one_half_or_two() -> None:
    assert halves_of("tun-node-x") == ("tun-node-x", "")
    assert halves_of("tun-node-x.y") == ("tun-node-x", "y")
