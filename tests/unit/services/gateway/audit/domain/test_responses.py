"""Entries as operators and as tenants see them."""

from services.gateway.audit.domain.responses import entry_response
from services.gateway.views.tables.audit import AuditRow

ROW = AuditRow(
    id="audit_log-1",
    tenant="acme",
    sequence=1,
    at=2_000,
    kind="operator",
    actor_tenant="local",
    key_id="bootstrap",
    address="10.0.0.1",
    method="GET",
    route="/v1/invoices",
    object_ids=(),
    status=200,
    request_id="req_1",
    times=1,
)


def test_security_m7_a_tenant_sees_that_an_operator_acted_and_not_who() -> None:
    shown = entry_response(ROW, for_operator=False)
    assert (shown.kind, shown.route, shown.created_at) == ("operator", "/v1/invoices", ROW.at)
    assert (shown.actor_tenant, shown.key_id, shown.address) == (None, None, None)


def test_an_operator_sees_who_acted() -> None:
    shown = entry_response(ROW, for_operator=True)
    assert (shown.actor_tenant, shown.key_id, shown.address) == ("local", "bootstrap", "10.0.0.1")
