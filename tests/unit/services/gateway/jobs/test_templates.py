"""Chat templates of jobs over HTTP."""

from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import submit


async def test_bases_f7_reasoning_that_the_template_leaves_out_is_refused_until_it_is_dropped(
    api: ControlPlane,
) -> None:
    client = await api.tenant()
    file_id = (await api.upload(client))["id"]
    await api.validated(client, file_id, reasoning="drop")
    report = (await client.get(f"/v1/files/{file_id}/validation")).json()
    assert [counted["reasoning"] for counted in report["tokens"]] == ["drop"]
    refused = await submit(client, file_id)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, "training.reasoning")
    assert "template_drops_text" in error["message"]
    assert "Set training.reasoning to drop" in error["message"]
    unknown = await submit(client, file_id, training={"reasoning": "hide"})
    assert "must be one of keep, drop" in unknown.json()["error"]["message"]
    job = (await submit(client, file_id, training={"reasoning": "drop"})).json()
    recipe = (await client.get(f"/v1/fine_tuning/jobs/{job['id']}/recipe")).json()["recipe"]
    assert recipe["training"]["reasoning"] == "drop"
    other = await submit(client, file_id, validation_file=file_id)
    assert other.json()["error"]["param"] == "training.reasoning"
