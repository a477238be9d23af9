"""A page needs a session, ends with its key, and shows its calls."""

from tests.unit.services.gateway.console.consoles import console_of, key_of, signed_in, visiting
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit

VIEWS = ("", "/new", "/playground", "/jobs/ftjob-1")


async def test_a_page_needs_a_session(api: ControlPlane) -> None:
    async with visiting(console_of(api)) as browser:
        for view in VIEWS:
            answer = await browser.get(f"/console{view}")
            assert answer.status_code == 303
            assert answer.headers["location"].startswith("/console/sign-in?next=")
        part = await browser.get("/console/jobs/ftjob-1/stream", headers={"hx-request": "true"})
        assert (part.status_code, part.headers["hx-redirect"]) == (401, "/console/sign-in")


async def test_a_revoked_key_ends_its_session(api: ControlPlane) -> None:
    client = await api.tenant()
    async with signed_in(console_of(api), key_of(client)) as browser:
        assert (await browser.get("/console")).status_code == 200
        assert (await client.delete("/v1/keys/current")).status_code == 200
        assert (await browser.get("/console")).status_code == 303


async def test_a_page_shows_its_calls(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    job_id = (await submit(client, file_id)).json()["id"]
    async with signed_in(console_of(api), key_of(client)) as browser:
        page = await browser.get(f"/console/jobs/{job_id}")
    for rest in ("", "/events?type=message", "/checkpoints", "/cost", "/metrics"):
        assert f"GET /v1/fine_tuning/jobs/{job_id}{rest}" in page.text
