"""Previews over HTTP."""

from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready


async def test_a_preview_needs_an_own_file_and_a_base_with_a_tokenizer(
    api: ControlPlane,
) -> None:
    client, file_id = await ready(api)
    body = {"model": "tiny-llama", "training_file": file_id}
    answer = await client.post("/v1/fine_tuning/preview", json=body)
    assert answer.status_code == 400  # this base model has no folder
    assert answer.json()["error"]["param"] == "model"
    assert "tokenizer.json" in answer.json()["error"]["message"]
    other = await api.tenant()
    assert (await other.post("/v1/fine_tuning/preview", json=body)).status_code == 404
    unknown = {**body, "model": "nothing"}
    assert (await client.post("/v1/fine_tuning/preview", json=unknown)).status_code == 404
