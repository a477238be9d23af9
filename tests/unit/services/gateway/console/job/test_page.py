"""A job of another tenant is not found; a key that may read changes nothing."""

from typing import Any

import pytest

from services.gateway.console.calls import Calls
from services.gateway.console.job.page import intervals
from services.gateway.console.visits import TEMPLATES
from tests.unit.services.gateway.console.consoles import OWN_SITE, console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit


async def test_ids_of_another_tenant_are_not_found(api: ControlPlane) -> None:
    owner, file_id = await ready(api)
    job_id = (await submit(owner, file_id)).json()["id"]
    other = await api.tenant()
    async with signed_in(console_of(api), key_of(other)) as browser:
        for path in ("/jobs/{job}", "/jobs/{job}/stream", "/new?file={file}"):
            theirs = await browser.get("/console" + path.format(job=job_id, file=file_id))
            none = await browser.get("/console" + path.format(job="ftjob-none", file="file-none"))
            assert (theirs.status_code, none.status_code) == (404, 404), path
        cancelled = await browser.post(f"/console/jobs/{job_id}/cancel", headers=OWN_SITE)
        assert cancelled.status_code == 404
        marked = await browser.post("/console/cancel", data={"job": job_id}, headers=OWN_SITE)
        assert "Could not find" in marked.text
    job = (await owner.get(f"/v1/fine_tuning/jobs/{job_id}")).json()
    assert job["status"] != "cancelled"


async def test_a_key_that_may_only_read_changes_nothing(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    job_id = (await submit(client, file_id)).json()["id"]
    name = client.headers["x-tenant"]
    created = await api.api.post(f"/v1/tenants/{name}/keys", json={"name": "r", "scopes": ["read"]})
    async with signed_in(console_of(api), created.json()["key"]) as browser:
        page = await browser.get(f"/console/jobs/{job_id}")
        assert page.status_code == 200
        assert f"/jobs/{job_id}/cancel" not in page.text
        assert "New job" not in page.text
        answer = await browser.post(f"/console/jobs/{job_id}/cancel", headers=OWN_SITE)
        assert answer.status_code == 403
        assert "jobs.write" in answer.text


async def test_answers_before_and_after_are_text(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, file_id = await ready(api)
    job_id = (await submit(client, file_id)).json()["id"]
    path = f"/console/jobs/{job_id}/answers"
    async with signed_in(console_of(api), key_of(client)) as browser:
        early = await browser.get(path)
        assert early.status_code == 404
        assert "has not been evaluated yet" in early.text

        async def answered(*_: object, **__: object) -> dict[str, Any]:
            return {"data": [{"prompt": "<b>?", "base": "<i>one", "adapter": "two"}]}

        monkeypatch.setattr(Calls, "get", answered)
        whole = await browser.get(path)
        part = await browser.get(path, headers={"hx-request": "true"})
    assert "<html" in whole.text
    assert "<html" not in part.text
    for text in ("&lt;b&gt;?", "&lt;i&gt;one", "two", "Before", "After"):
        assert text in part.text


def test_a_gate_is_shown_with_bounds_on_one_side_or_both() -> None:
    compared: dict[str, Any] = {
        "benchmark": None,
        "against": "base model",
        "verdict": "pass",
        "items": 249,
    }
    compared |= {"change": -0.01, "drop_ruled_out": 0.04, "drop_allowed": 0.1}
    measured: dict[str, Any] = {
        "measure": "exact",
        "verdict": "block",
        "base": 0.5,
        "adapter": 0.4,
        "rows": 40,
    }
    measured |= {"low": -0.2, "high": 0.05, "gain_wanted": 0.0}
    rows = intervals({"comparisons": [compared], "measures": [measured]})
    template = TEMPLATES.get_template("job/intervals.html")
    shown = template.render(intervals=rows)
    assert "at least -4.0 % (95 %) · decides at -10.0 %" in shown
    assert "-20.0 % to 5.0 % · decides at 0.0 %" in shown
    assert 'x2="100"' in shown
    assert intervals(None) == []
