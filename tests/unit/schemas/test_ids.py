"""Derived ids are equal exactly where their sources are."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.envelope import Source
from schemas.ids import derived_id, event_id, reaction_id

COMMAND = str(UUID(int=7))
SOURCES = st.tuples(
    st.sampled_from(("job", "pool", "dataset")),
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(0, 2**63),
    st.integers(0, 20),
)


def test_each_event_of_a_command_has_its_own_id_that_never_changes() -> None:
    assert event_id(COMMAND, 0) == event_id(COMMAND, 0)
    assert len({event_id(COMMAND, index) for index in range(100)}) == 100
    assert event_id(str(UUID(int=8)), 0) != event_id(COMMAND, 0)
    assert UUID(event_id(COMMAND, 2**63)).version == 5


@given(SOURCES, SOURCES)
def test_reactions_have_equal_ids_only_for_equal_sources(
    left: tuple[str, int, int, int, int], right: tuple[str, int, int, int, int]
) -> None:
    assert (reaction_id(Source(*left)) == reaction_id(Source(*right))) == (left == right)


def test_ids_do_not_change_with_a_release() -> None:
    assert reaction_id(Source("job", 1, 2, 3, 4)) == "942a1ed5-0fdd-53b9-9a01-757efdd7c3d5"
    assert event_id(COMMAND, 1) == "8265c1eb-c133-5642-8dbd-3a722d494f44"
    assert derived_id("event", "we_1") == "543d802b010650289f5860fd"


@pytest.mark.parametrize("parts", [("a",), ("a", "b"), ("", ""), ("ü", "\U0001f600")])
def test_a_derived_id_is_24_hex_digits(parts: tuple[str, ...]) -> None:
    assert len(derived_id(*parts)) == 24
    assert int(derived_id(*parts), 16) >= 0
    assert derived_id(*parts) == derived_id(*parts)
    assert derived_id(*parts) != derived_id(*parts, "")


def test_an_id_that_is_no_uuid_cannot_have_events() -> None:
    with pytest.raises(ValueError, match="UUID"):
        event_id("job-1", 0)
