"""What would start a job sooner: its recipe changed in one thing, planned by the API."""

from typing import Any

from services.gateway.console.job.starts import changes
from tests.unit.services.gateway.console.consoles import console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit


def test_each_change_differs_in_one_thing() -> None:
    body: dict[str, Any] = {
        "model": "m",
        "training": {"slots": 4, "n_epochs": 3, "rank": 8},
        "placement": {"domain": "rack-1", "domain_wait_minutes": 5, "spot": False},
    }
    bodies = changes(body)
    assert [*bodies] == [
        "As it is, submitted now",
        "With 2 of 4 slots",
        "With 1 of 4 slots",
        "With 1 of 3 epochs",
        "In any domain",
        "On spot machines too",
    ]
    assert bodies["With 2 of 4 slots"]["training"] == {"slots": 2, "n_epochs": 3, "rank": 8}
    assert bodies["In any domain"]["placement"]["domain_wait_minutes"] is None
    assert bodies["As it is, submitted now"] == body


async def test_a_waiting_job_shows_the_planners_own_answers(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    job_id = (await submit(client, file_id)).json()["id"]
    async with signed_in(console_of(api), key_of(client)) as browser:
        page = await browser.get(f"/console/jobs/{job_id}")
        assert f"/console/jobs/{job_id}/starts" in page.text
        part = await browser.get(f"/console/jobs/{job_id}/starts", headers={"hx-request": "true"})
        assert "<html" not in part.text
        for name in ("With 1 of 3 epochs", "On spot machines too"):
            assert name in part.text
        whole = await browser.get(f"/console/jobs/{job_id}/starts")
        assert whole.text.count("POST /v1/fine_tuning/jobs/plan") == 3
        assert (await browser.get("/console/jobs/none/starts")).status_code == 404
    (listed,) = (await client.get("/v1/fine_tuning/jobs")).json()["data"]
    assert listed["id"] == job_id
