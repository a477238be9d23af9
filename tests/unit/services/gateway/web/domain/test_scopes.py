"""Scope that a request needs."""

import pytest

from services.gateway.web.domain.scopes import allows, scope_of

pytestmark = pytest.mark.security


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/v1/files", "files.read"),
        ("DELETE", "/v1/files/file-1", "files.write"),
        ("POST", "/v1/fine_tuning/jobs/estimate", "jobs.read"),
        ("POST", "/v1/fine_tuning/alpha/graders/run", "jobs.read"),
        ("POST", "/v1/tenants", "write"),
        ("GET", "/v1/usage", "billing.read"),
    ],
)
def test_a_request_needs_the_scope_of_its_resource(method: str, path: str, scope: str) -> None:
    assert scope_of(method, path) == scope


def test_an_action_without_a_resource_allows_it_everywhere() -> None:
    assert allows(frozenset({"read"}), "files.read")
    assert not allows(frozenset({"jobs.read"}), "files.read")
