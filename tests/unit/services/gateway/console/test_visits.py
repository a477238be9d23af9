"""A page needs a session, ends with its key, and shows its calls."""

import asyncio
import time

from tests.unit.services.gateway.console.consoles import (
    OWN_SITE,
    console_of,
    key_of,
    signed_in,
    visiting,
)
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit

VIEWS = ("", "/new", "/playground", "/jobs/ftjob-1")


async def test_a_page_needs_a_session(api: ControlPlane) -> None:
    async with visiting(console_of(api)) as browser:
        for view in VIEWS:
            answer = await browser.get(f"/console{view}")
            assert answer.status_code == 303
            assert answer.headers["location"].startswith("/console/sign-in?next=")
        for shown, back in (
            ("http://api/console/jobs/ftjob-1?a=b", "%2Fconsole%2Fjobs%2Fftjob-1%3Fa%3Db"),
            ("http://api//elsewhere/", "%2Fconsole"),
            ("", "%2Fconsole"),
        ):
            headers = {"hx-request": "true", "hx-current-url": shown}
            part = await browser.get("/console/jobs/ftjob-1/stream", headers=headers)
            address = f"/console/sign-in?next={back}"
            assert (part.status_code, part.headers["hx-redirect"]) == (401, address)


async def test_an_error_says_what_to_do(api: ControlPlane) -> None:
    client = await api.tenant()
    name = client.headers["x-tenant"]
    key = await api.api.post(f"/v1/tenants/{name}/keys", json={"name": "r", "scopes": ["read"]})
    console = console_of(api)
    async with signed_in(console, key.json()["key"]) as browser:
        refused = await browser.post("/console/webhooks", data={"url": "x"}, headers=OWN_SITE)
        assert (refused.status_code, "webhooks.write" in refused.text) == (403, True)
        assert "This key is <b>r</b>" in refused.text
        assert "Try again" not in refused.text

        async def away(*_: object) -> None:
            raise OSError

        console._pages.app.state.sessions.find = away  # type: ignore[attr-defined]  # a stand-in
        for path, shown, again in (
            ("/console/models?a=b", "", "/console/models?a=b"),
            ("/console/keys", "http://api/console/webhooks", "/console/webhooks"),
            ("/console/keys", "http://api//elsewhere/", "/console"),
        ):
            method = "POST" if shown else "GET"
            headers = {**OWN_SITE, "referer": shown}
            answer = await browser.request(method, path, headers=headers)
            assert answer.status_code == 503
            assert f'href="{again}">Try again' in answer.text


async def test_a_revoked_key_ends_its_session(api: ControlPlane) -> None:
    client = await api.tenant()
    async with signed_in(console_of(api), key_of(client)) as browser:
        assert (await browser.get("/console")).status_code == 200
        assert (await client.delete("/v1/keys/current")).status_code == 200
        assert (await browser.get("/console")).status_code == 303


async def test_a_key_that_expires_in_the_middle_ends_its_session(api: ControlPlane) -> None:
    tenant = (await api.tenant()).headers["x-tenant"]
    ends_at = int(time.time()) + 3
    body = {"scopes": ["read"], "expires_at": ends_at}
    key = (await api.api.post(f"/v1/tenants/{tenant}/keys", json=body)).json()["key"]
    async with signed_in(console_of(api), key) as browser:
        assert (await browser.get("/console/models?a=b")).status_code == 200
        await asyncio.sleep(ends_at - time.time())
        shown = await browser.get("/console/models?a=b")
    assert shown.headers["location"] == "/console/sign-in?next=%2Fconsole%2Fmodels%3Fa%3Db"


async def test_a_page_shows_its_calls(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    job_id = (await submit(client, file_id)).json()["id"]
    async with signed_in(console_of(api), key_of(client)) as browser:
        page = await browser.get(f"/console/jobs/{job_id}")
    for rest in ("", "/events?type=message", "/checkpoints", "/cost", "/metrics"):
        assert f"GET /v1/fine_tuning/jobs/{job_id}{rest}" in page.text
