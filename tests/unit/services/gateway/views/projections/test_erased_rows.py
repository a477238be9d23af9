"""Every table that has rows of a tenant is either deleted with it, or kept for a reason."""

from schemas.erasure import FilesErased
from services.gateway.views.projections.journals import ROWS, TABLES, delete_erased
from services.gateway.views.tables import accounts, audit, billing, jobs
from tests.unit.services.gateway.view_rows import header
from tunery.runtime.verbs import Delete

BILLS = (
    *(billing.MONTHS, billing.ADJUSTMENTS, billing.CREDIT_NOTES, billing.PREPAID),
    *(billing.STORED, billing.ANSWER_USES, jobs.USAGE, billing.BILLING_TERMS, billing.HELD_BOOKS),
)
RECORDS = (accounts.ERASED_PARTS, accounts.KEY_USES, audit.AUDIT_ENTRIES)
#: of the pool, by job: they end by themselves or stay, and have identifiers alone
OF_THE_POOL = (jobs.PLACEMENTS, jobs.SEATS, jobs.ATTEMPT_TIMES)


def test_security_h4_every_table_of_tenants_goes_or_stays_for_a_reason() -> None:
    deleted = {table.name for tables in ROWS.values() for table in tables}
    kept = {table.name for table in (*BILLS, *RECORDS, *OF_THE_POOL)}
    assert not deleted & kept
    of_tenants = {table.name for table in TABLES if "tenant" in table.columns}
    assert of_tenants - deleted - kept == set()


def test_security_h4_rows_go_with_the_event_of_their_own_journal() -> None:
    deletes = delete_erased(header("dataset"), FilesErased())
    assert Delete("files", {"tenant": "acme"}) in deletes
