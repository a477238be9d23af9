import pytest

from tunery.runtime.store.absent import absent_store


async def test_a_use_of_rows_by_a_service_that_keeps_none_names_it() -> None:
    with pytest.raises(RuntimeError, match="exporter keeps no rows"):
        await absent_store("exporter").rows("ledger")
