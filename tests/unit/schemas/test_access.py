"""The table of access: every service of the catalogue of topics is in it."""

import pytest

from schemas.access import ACCESS, KEEPS_ROWS, keeps_rows
from schemas.topics import OWNERS, SERVICES

pytestmark = pytest.mark.security


def test_each_service_has_its_line() -> None:
    assert sorted(ACCESS) == sorted(SERVICES)
    assert set(OWNERS) < set(KEEPS_ROWS)  # with digests, at least
    assert [keeps_rows(name) for name in ("gateway", "trainer", "elsewhere")] == [True, False, True]
