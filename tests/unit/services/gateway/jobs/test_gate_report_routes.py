"""`GET /v1/models/{id}/gate/report`: a page for its tenant alone."""

from schemas.topics import POOL
from schemas.training import BlobFile
from services.gateway.views.host import VIEWS_PROJECTION
from services.gateway.views.tables.jobs import JOBS
from tests.unit.services.eval.samples import holdout, item, scores
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.job_events import SUMMARY
from tests.unit.services.gateway.jobs.test_routes import ready, submit
from tests.unit.services.gateway.models.test_routes import version
from tunery.runtime.store.abstract import RowBatch
from tunery.work.codec import encode_scores


async def judge(api: ControlPlane, tenant: str, job_id: str) -> None:
    """Give a job a verdict and scores, as its evaluation would."""
    data = encode_scores(scores((item(1, True, False),), holdout()))
    stored = await api.world.blobs.put(f"t/{tenant}/scores", data)
    file = BlobFile(name="scores.json", blob=stored.key, sha256=stored.sha256, bytes=stored.bytes)
    change = JOBS.update({"tenant": tenant, "id": job_id}, scores=file, gate=SUMMARY)
    name, partition = VIEWS_PROJECTION.name, (POOL.name, 0)
    position = (await api.runtime.store.positions(name))[partition].position
    await api.runtime.store.commit(
        RowBatch(name, VIEWS_PROJECTION.version, partition, position.offset, position, (change,))
    )


async def test_the_report_is_a_page_that_loads_nothing(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    job_id = (await submit(client, file_id)).json()["id"]
    await judge(api, client.headers["x-tenant"], job_id)
    path = f"/v1/models/{await version(api, client, 'judged', job_id=job_id)}/gate/report"
    page = await client.get(path)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert "which the two differ (1)" in page.text
    stranger = await api.tenant()
    assert (await stranger.get(path)).status_code == 404


async def test_a_version_that_was_not_judged_has_no_report(api: ControlPlane) -> None:
    client = await api.tenant()
    missing = await client.get(f"/v1/models/{await version(api, client, 'plain')}/gate/report")
    assert (missing.status_code, "has not judged" in missing.text) == (404, True)
    assert (await client.get("/v1/models/ft:none/gate/report")).status_code == 404
