"""The end of a tenant's versions, also of those that could be restored."""

import pytest

from schemas.erasure import EraseModels, ModelsErased
from schemas.lifetime import ReleaseVersion
from schemas.model import DeleteVersion, Promote
from services.registry.domain import erasure
from services.registry.domain.state import INITIAL, TenantModels
from tests.unit.services.registry.domain.test_decide import (
    after,
    published,
    refusal,
    register,
    step,
)


def test_security_h4_all_versions_go_in_as_many_events_as_they_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(erasure, "MODELS_OF_EVENT_MAX", 2)
    life = [command for name in "abc" for command in (register(name), published(name))]
    state = after(*life, DeleteVersion(model_id="b"))
    state, events = step(state, EraseModels())
    assert events == (ModelsErased(models=("a", "b"), more=True),)
    state, events = step(state, EraseModels())
    assert events == (ModelsErased(models=("c",)),)
    assert state.tenants["acme"] == TenantModels(erased=True)
    assert step(state, EraseModels())[1] == ()


def test_security_h4_later_requests_are_refused_and_facts_change_nothing() -> None:
    state, _ = step(INITIAL, EraseModels())
    refused = refusal(step(state, Promote(model_id="a", stage="production", expected=None))[1])
    assert refused.reason.code == "tenant_erased"
    for late in (register("late"), ReleaseVersion(job_id="ftjob-1")):
        assert step(state, late)[1] == ()
