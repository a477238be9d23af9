"""The table of access: every service of the catalogue of topics is in it."""

import pytest

from schemas.access import (
    ACCESS,
    BESIDE,
    KEEPS_ROWS,
    VIEWS_VERSION,
    keeps_rows,
    opens_keys,
    schema_of,
)
from schemas.topics import OWNERS, SERVICES

pytestmark = pytest.mark.security


def test_each_service_has_its_line() -> None:
    assert sorted(ACCESS) == sorted(SERVICES)
    assert set(OWNERS) < set(KEEPS_ROWS)  # with digests, at least
    assert [keeps_rows(name) for name in ("gateway", "trainer", "elsewhere")] == [True, False, True]


def test_a_process_beside_a_service_has_its_rows_and_no_keys() -> None:
    assert BESIDE["views"] == "gateway"
    assert schema_of("views") == schema_of("gateway") == f"gateway_v{VIEWS_VERSION}"
    assert [schema_of(name) for name in ("billing", "elsewhere")] == ["billing", "elsewhere"]
    assert opens_keys("gateway")
    assert not opens_keys("views")
