"""Versions as an engine loads them, and the deployment of a stage."""

import pytest
from msgspec.structs import replace

from schemas.training import BlobFile
from services.gateway.deployments.serving import deployment_of, loadable, refuse_quarantined
from services.gateway.views.tables.models import MODELS, ModelRow
from services.gateway.web.deps import Principal
from services.gateway.web.domain.errors import ApiError
from tests.unit.services.gateway.control_plane import BASE, ControlPlane
from tests.unit.services.gateway.deployments.test_routes import deploy
from tests.unit.services.gateway.models.test_routes import FILE, version

ANYBODY = Principal("acme", "key_1", frozenset())
WHOLE = BlobFile(name="model.safetensors", blob="t/x/w", sha256="ef" * 32, bytes=20)


async def row_of(api: ControlPlane, model: str) -> ModelRow:
    row = await api.deps.views.first(MODELS, {"id": model})
    assert row is not None
    return row


async def test_a_version_is_loaded_with_the_base_model_that_it_was_trained_from(
    api: ControlPlane,
) -> None:
    row = await row_of(api, await version(api, await api.tenant(), "a"))
    model = await loadable(api.deps, ANYBODY, row, row.id)
    assert (model.base_sha256, model.base_path, model.adapter) == (BASE.sha256, BASE.path, (FILE,))
    key = replace_models(ANYBODY, "another")
    for wrong, caller, status in (
        (replace(row, files=(WHOLE,)), ANYBODY, 400),
        (row, key, 403),
        (replace(row, lineage=replace(row.lineage, base_id="gone")), ANYBODY, 404),
    ):
        with pytest.raises(ApiError) as refused:
            await loadable(api.deps, caller, wrong, row.id)
        assert refused.value.status == status


async def test_a_version_in_quarantine_is_refused_by_its_own_name(api: ControlPlane) -> None:
    row = await row_of(api, await version(api, await api.tenant(), "a"))
    refuse_quarantined(row, row.id)
    with pytest.raises(ApiError, match="is in quarantine") as refused:
        refuse_quarantined(replace(row, quarantined=True), row.id)
    assert refused.value.status == 403


def replace_models(caller: Principal, model: str) -> Principal:
    return Principal(caller.tenant, caller.key_id, caller.scopes, frozenset({model}))


async def test_a_deployment_of_a_version_that_left_the_stage_does_not_count(
    api: ControlPlane,
) -> None:
    client = await api.tenant()
    first, second = await version(api, client, "a"), await version(api, client, "b")
    await deploy(client, first, traffic={first: 50, second: 50})
    row = await row_of(api, first)
    held = (await deployment_of(api.deps, row, "production")).deployment
    assert held.second is not None
    other = (await deployment_of(api.deps, await row_of(api, second), "production")).deployment
    assert (other.model_id, other.second) == (second, None)
    assert (await deployment_of(api.deps, row, "staging")).deployment.second is None
