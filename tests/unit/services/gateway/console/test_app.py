"""All pages: requests of other sites, the policy, texts of tenants."""

import re

import httpx
import pytest

from schemas.telemetry import LogLine
from services.gateway.console.app import POLICY
from tests.unit.services.gateway.console.consoles import console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit
from tests.unit.services.gateway.models.test_routes import version

XSS = "<img src=x onerror=alert(1)>\"'&</script>"
VIEWS = ("", "/new", "/playground", "/money", "/models", "/sweeps", "/webhooks", "/keys")


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "cross-site", "origin": "http://api"}, False),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "http://api.evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://api"}, True),
        ({"authorization": "Basic dTpw"}, False),
        ({"authorization": "Basic dTpw", "sec-fetch-site": "cross-site"}, False),
    ],
)
async def test_only_pages_of_the_console_change_something(
    api: ControlPlane, headers: dict[str, str], allowed: bool
) -> None:
    client, file_id = await ready(api)
    job_id = (await submit(client, file_id)).json()["id"]
    async with signed_in(console_of(api), key_of(client)) as browser:
        path = f"/console/jobs/{job_id}/cancel"
        answer = await browser.post(path, headers=headers)
        assert (answer.status_code == 303) == allowed
        job = (await client.get(f"/v1/fine_tuning/jobs/{job_id}")).json()
        assert (job["status"] == "cancelled") == allowed


async def test_no_page_has_a_script_or_style_of_its_own(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    job_id = (await submit(client, file_id)).json()["id"]
    model_id = await version(api, client, "one")
    items = (f"/new?file={file_id}", f"/jobs/{job_id}", f"/jobs/{job_id}/starts")
    there = (*VIEWS, *items, f"/models/{model_id}", f"/models/{model_id}/files")
    views = (*there, "/jobs/none", "/nowhere", "/models/none", "/operators")
    async with signed_in(console_of(api), key_of(client)) as browser:
        pages = [await browser.get(f"/console{view}") for view in views]
        pages.append(await browser.get("/console/sign-in"))
    expected = [200] * len(there) + [404, 404, 404, 403, 200]
    assert [page.status_code for page in pages] == expected
    for page in pages:
        assert page.headers["content-security-policy"] == POLICY
        assert "unsafe" not in POLICY
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page.text)
        for address in re.findall(r'(?:src|href|action)="([^"]*)"', page.text):
            assert address.startswith(("/console", "#", "/v1/downloads/")), address


async def test_texts_of_tenants_are_text(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    named = await client.post(
        "/v1/files", data={"purpose": "fine-tune"}, files={"file": (XSS, b"{}\n")}
    )
    assert named.status_code == 200, named.text
    submitted = await submit(client, file_id, suffix=XSS[:18], metadata={"k": XSS})
    job_id, tenant = submitted.json()["id"], client.headers["x-tenant"]
    line = LogLine(tenant=tenant, job_id=job_id, attempt=1, level="warn", text=XSS)
    await api.telemetry(tenant, job_id, line)
    hook = {"name": XSS[:30], "url": "https://example.com/a"}
    hooked = await client.post("/v1/webhook_endpoints", json=hook)
    assert hooked.status_code == 200, hooked.text
    key = {"name": XSS[:30], "scopes": ["read"]}
    assert (await api.api.post(f"/v1/tenants/{tenant}/keys", json=key)).status_code == 201
    other_id = (await submit(client, file_id, suffix=XSS[:18], seed=2)).json()["id"]
    async with signed_in(console_of(api), key_of(client)) as browser:
        for path in (
            "",
            f"?suffix={httpx.QueryParams({'s': XSS})}",
            f"?status={XSS}",
            "/new",
            f"/new?file={named.json()['id']}",
            f"/jobs/{job_id}",
            f"/jobs/{XSS}",
            f"/playground?model={XSS}",
            f"/sign-in?next={XSS}",
            f"/?metadata={XSS}=1",
            f"/compare?job={job_id}&job={other_id}",
            f"/jobs/{job_id}/starts",
            f"/models/{XSS}",
            f"/money/invoices/{XSS}",
            f"/money/jobs/{XSS}",
            f"/sweeps/{XSS}",
            "/webhooks",
            f"/webhooks/{hooked.json()['id']}",
            "/keys",
        ):
            page = await browser.get(f"/console{path}")
            assert page.headers["content-type"].startswith("text/html")
            assert "<img" not in page.text, path
            assert "</script>\"'" not in page.text, path
