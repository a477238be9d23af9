"""All pages: requests of other sites, the policy, texts of tenants."""

import json
import re
from pathlib import Path

import httpx
import pytest

from schemas.telemetry import LogLine
from services.gateway.console import app
from services.gateway.console.app import INSTALLED, POLICY, Assets
from services.gateway.console.calls import Calls
from tests.unit.services.gateway.console.consoles import (
    OWN_SITE,
    console_of,
    key_of,
    signed_in,
    visiting,
)
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit
from tests.unit.services.gateway.jobs.test_sweep_routes import sweep
from tests.unit.services.gateway.models.test_routes import version
from tests.unit.services.gateway.sessions.sdk import Sdk

XSS = "<img src=x onerror=alert(1)>\"'&</script>"
VIEWS = (
    "",
    "/new",
    "/playground",
    "/money",
    "/models",
    "/sweeps",
    "/sessions",
    "/webhooks",
    "/keys",
)


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
    assert all('aria-label="Main"' in page.text for page in pages[:-1]), "each has the menu"
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
    submitted = await submit(client, file_id, suffix=XSS[:18], metadata={"k": XSS}, tags=[XSS])
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
            f"/?search={XSS}&after={XSS}",
            f"/new/rows?model={XSS}&training_file={file_id}",
            f"/compare?job={job_id}&job={other_id}",
            f"/jobs/{job_id}/starts",
            f"/models/{XSS}",
            f"/money/invoices/{XSS}",
            f"/money/jobs/{XSS}",
            f"/sweeps/{XSS}",
            f"/sessions/{XSS}",
            "/webhooks",
            f"/webhooks/{hooked.json()['id']}",
            "/keys",
        ):
            page = await browser.get(f"/console{path}")
            assert page.headers["content-type"].startswith("text/html")
            assert "<img" not in page.text, path
            assert "</script>\"'" not in page.text, path
        asked = {"a": XSS, "b": "tiny-llama", "system": XSS, "user": XSS, "blind": "yes"}
        item = {"messages": json.dumps([{"role": "user", "content": XSS}]), "answer": XSS}
        for path, form in (
            ("/playground/ask", asked),
            ("/playground/items", item),
            ("/new/estimate", {"model": XSS, "training_file": XSS, "suffix": XSS}),
            ("/new", {"model": XSS, "training_file": file_id}),
            ("/cancel", {"job": XSS}),
            ("/webhooks", {"name": XSS, "url": XSS}),
            ("/keys", {"name": XSS, "role": XSS}),
            ("/money/budgets", {"key_id": XSS, "amount": XSS}),
            ("/sign-in", {"key": XSS, "next": XSS}),
        ):
            answer = await browser.post(f"/console{path}", data=form, headers=OWN_SITE)
            assert answer.status_code < 500, path
            assert "<img" not in answer.text, path
            assert "</script>\"'" not in answer.text, path


@pytest.mark.parametrize("value", ["\0", "9" * 400, "[" * 50_000, "\u202e\U0010ffff"])
async def test_no_value_of_a_form_breaks_a_page(api: ControlPlane, value: str) -> None:
    templates = [each.read_text() for each in Path(app.__file__).parent.rglob("*.html")]
    form = dict.fromkeys(re.findall(r' name="([a-z_]+)"', " ".join(templates)), value)
    console = console_of(api)
    changes = [each.path for each in console.routes if "POST" in (each.methods or ())]
    async with signed_in(console, key_of(await api.tenant())) as browser:
        for path in (each for each in changes if not each.endswith(("/sign-in", "/sign-out"))):
            address = re.sub(r"\{[^}]*\}", "x", path)
            answer = await browser.post(address, data=form, headers=OWN_SITE)
            assert answer.status_code < 500, path
    assert {"n_epochs", "messages", "amount"} < form.keys()


async def test_no_route_finds_what_is_another_tenants(api: ControlPlane) -> None:
    """Every route with an id answers as for one that does not exist, and changes nothing."""
    owner, file_id = await ready(api)
    job_id = (await submit(owner, file_id)).json()["id"]
    hook = {"name": "h", "url": "https://example.com/a"}
    hook_id = (await owner.post("/v1/webhook_endpoints", json=hook)).json()["id"]
    upload = {"filename": "f", "bytes": 1, "mime_type": "text/plain", "purpose": "fine-tune"}
    ids = {
        "job_id": job_id,
        "model_id": await version(api, owner, "theirs"),
        "key_id": (await owner.get("/v1/keys/current")).json()["id"],
        "endpoint_id": hook_id,
        "sweep_id": (await owner.post("/v1/sweeps", json=sweep(file_id))).json()["id"],
        "session_id": await Sdk(api, owner).model(),
        "upload_id": (await owner.post("/v1/uploads", json=upload)).json()["id"],
        "invoice_id": "none",  # its id is a month: each tenant has one of its own
        "budget_id": "none",
        "node_id": "none",  # of operators alone
    }
    changes = {
        "job_id": "cancel",
        "model_id": "promote",
        "endpoint_id": "delete",
        "node_id": "drain",
    }
    console = console_of(api)
    tried = set[str]()
    async with signed_in(console, key_of(await api.tenant())) as browser:
        for route in console.routes:
            for name in {*route.param_convertors} & {*ids}:
                values = {"change": changes.get(name, ""), name: ids[name]}
                path = "/".join(
                    values.get(part.strip("{}").partition(":")[0], part) if "{" in part else part
                    for part in route.path.split("/")
                )
                for method in {*(route.methods or ())} - {"HEAD"}:
                    form = {"stage": "staging", "part": "x"} if method == "POST" else None
                    answer = await browser.request(method, path, headers=OWN_SITE, data=form)
                    wanted = 403 if name == "node_id" else 404
                    assert answer.status_code == wanted, (method, path, answer.text)
                    tried.add(name)
        for path in (f"/compare?job={job_id}&job=ftjob-none", f"/new?file={file_id}"):
            assert (await browser.get(f"/console{path}")).status_code == 404, path
    assert tried == ids.keys()
    assert (await owner.get(f"/v1/fine_tuning/jobs/{job_id}")).json()["status"] != "cancelled"
    assert (await owner.get(f"/v1/webhook_endpoints/{hook_id}")).status_code == 200
    assert (await owner.get(f"/v1/sessions/{ids['session_id']}")).json()["ends"] is None


async def test_a_page_with_nothing_to_show_says_what_to_do(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await api.tenant()
    file_id = (await api.upload(client))["id"]
    await api.validated(client, file_id)
    get = Calls.get

    async def without_models(calls: Calls, path: str, **query: object) -> object:
        return {"data": []} if path == "/v1/models" else await get(calls, path, **query)

    monkeypatch.setattr(Calls, "get", without_models)
    async with signed_in(console_of(api), key_of(client)) as browser:
        for path, advice in (
            ("", "Upload a file of conversations"),
            ("?search=none", "Choose another state"),
            ("/sweeps", "tunery sweep run"),
            ("/sessions", "pip install tinker"),
            ("/models", "A job that succeeds publishes one"),
            ("/playground", "tunery base add"),
            (f"/new?file={file_id}", "tunery base add"),
            ("/money", "No job has used a device this month"),
            ("/webhooks", "New endpoint"),
        ):
            page = await browser.get(f"/console{path}")
            assert (page.status_code, advice in page.text) == (200, True), path


async def test_a_file_has_one_address_and_no_other(api: ControlPlane) -> None:
    async with visiting(console_of(api)) as browser:
        address = Assets(None).url("console.css")
        answer = await browser.get(address)
        assert answer.headers["content-type"].startswith("text/css")
        assert "immutable" in answer.headers["cache-control"]
        assert (await browser.get(address.replace("assets/", "assets/0"))).status_code == 404
        elsewhere = await browser.get("/console/assets/x/..%2Fapp.py")
        assert elsewhere.headers["location"].startswith("/console/sign-in"), "it is no file"


def test_installed_scripts_are_read_where_they_are(tmp_path: Path) -> None:
    assert not Assets(tmp_path / "none").is_complete
    for path in INSTALLED.values():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"1")
    assets = Assets(tmp_path)
    assert assets.is_complete
    assert assets.url("htmx.js").endswith("/htmx.js")
