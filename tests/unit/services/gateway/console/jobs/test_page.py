"""The table of jobs: filters, many cancelled at once, refusals by name."""

from tests.unit.services.gateway.console.consoles import OWN_SITE, console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit


async def test_jobs_are_filtered_and_those_that_are_marked_cancelled(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    first, second = [
        (await submit(client, file_id, suffix=s)).json()["id"] for s in ("lamp", "wood")
    ]
    async with signed_in(console_of(api), key_of(client)) as browser:
        filtered = await browser.get("/console?search=Lamp+tiny", headers={"hx-request": "true"})
        assert first in filtered.text
        assert second not in filtered.text
        assert "<html" not in filtered.text
        assert "No job matches" in (await browser.get("/console?search=none")).text
        form = {"job": [first, "ftjob-none"]}
        answer = await browser.post("/console/cancel", data=form, headers=OWN_SITE)
        assert "Could not find" in answer.text
        path = {"job": ".."}
        answer = await browser.post("/console/cancel", data=path, headers=OWN_SITE)
        assert "Could not find fine tune: .." in answer.text
    jobs = {job["id"]: job for job in (await client.get("/v1/fine_tuning/jobs")).json()["data"]}
    assert jobs[first]["status"] == "cancelled"
    assert jobs[second]["status"] != "cancelled"
