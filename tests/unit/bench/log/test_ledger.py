"""The bare side of the ledger's bench writes what the product writes, whatever columns come."""

from bench.log.ledger import bare_row, slices_from
from services.billing.project import project_ledger
from tunery.runtime.store.changes import fold


def test_a_bare_row_equals_the_row_of_the_product() -> None:
    header, event = next(slices_from(0))
    [group] = fold(project_ledger(header, event)).upserts
    assert group.rows == (bare_row(header, event),)
