"""Validation of requests about tenants, keys and webhook endpoints."""

from typing import Any

import pytest
from pydantic import ValidationError

from schemas.account import STANDARD_EVENT_TYPES
from schemas.units import AMOUNT_MICRO_MAX
from services.gateway.accounts.domain.bodies import (
    OVERLAP_S_MAX,
    AdjustmentRequest,
    EndpointChangeRequest,
    EndpointRequest,
    KeyRequest,
    RedeliverRequest,
    RotateKeyRequest,
    TenantRequest,
)
from services.gateway.web.domain.bodies import Body


def test_an_address_is_a_receiver_of_e_mail() -> None:
    assert EndpointRequest(url="mailto:ops@acme.example").url == "mailto:ops@acme.example"
    for url in ("mailto:", "mailto:ops", "mailto:a@b.cd,d@e.fg", "mailto:a%40b.cd(@acme.example"):
        with pytest.raises(ValidationError, match="mailto:ops@example"):
            EndpointRequest(url=url)


@pytest.mark.parametrize(
    "url",
    ["https://example.com/hook", "http://10.0.0.1:8080/", "https://[::1]/hook?a=b"],
)
def test_a_url_with_a_host_is_a_receiver(url: str) -> None:
    assert EndpointRequest(url=url).url == url


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "example.com/hook",
        "https://",
        "https:///hook",
        "https://user:secret@example.com/",
        "https://example.com/a b",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://[::1/",
        "https://example.com/" + "a" * 2_048,
    ],
)
def test_a_url_that_names_no_receiver_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        EndpointRequest(url=url)


def test_an_endpoint_gets_openais_events_unless_it_says() -> None:
    assert EndpointRequest(url="https://a.example/").event_types == list(STANDARD_EVENT_TYPES)
    assert EndpointChangeRequest().model_dump(exclude_none=True) == {}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (TenantRequest, {"id": "Acme"}),
        (TenantRequest, {"id": "-acme"}),
        (TenantRequest, {"id": "a" * 64}),
        (TenantRequest, {"id": "acme\n"}),
        (TenantRequest, {"id": "acme", "plan": "gold"}),
        (
            TenantRequest,
            {"id": "acme", "limits": {"soft_gpu_ms": 1, "hard_gpu_ms": 1, "concurrency": 0}},
        ),
        (KeyRequest, {"scopes": []}),
        (KeyRequest, {"scopes": ["everything"]}),
        (KeyRequest, {"models": []}),
        (KeyRequest, {"expires_at": -1}),
        (KeyRequest, {"requests_per_minute": 0}),
        (EndpointRequest, {"url": "https://a.example/", "event_types": []}),
        (AdjustmentRequest, {"reference": "/r", "amount_micro": 1, "reason": "goodwill"}),
        (AdjustmentRequest, {"reference": "r", "amount_micro": 1.0, "reason": "goodwill"}),
        (
            AdjustmentRequest,
            {"reference": "r", "amount_micro": AMOUNT_MICRO_MAX + 1, "reason": "goodwill"},
        ),
        (RotateKeyRequest, {"overlap_seconds": OVERLAP_S_MAX + 1}),
        (RedeliverRequest, {"delivery_ids": []}),
    ],
)
def test_what_is_out_of_bounds_is_refused(kind: type[Body], fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        kind.model_validate(fields)


def test_the_bounds_themselves_are_taken() -> None:
    assert TenantRequest(id="a" * 63).plan == "standard"
    credit = AdjustmentRequest(reference="r/1", amount_micro=-AMOUNT_MICRO_MAX, reason="contract")
    assert credit.amount_micro == -AMOUNT_MICRO_MAX
    assert RotateKeyRequest(overlap_seconds=0).overlap_seconds == 0
    assert KeyRequest().scopes == ["read", "write"]
