"""A new job: the upload is passed on, the settings become a body, a press twice is one job."""

import msgspec
from starlette.datastructures import FormData

from services.gateway.console.new_job.page import body_of
from tests.unit.services.gateway.console.consoles import OWN_SITE, console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ROW, ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready

FAULT = {
    "row": 7,
    "line": 7,
    "pointer": "/messages",
    "code": "empty_text",
    "message": "<img src=x>",
    "hint": "",
    "excerpt": "",
}


async def test_a_file_is_uploaded_and_a_job_submitted_once(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    async with signed_in(console_of(api), key_of(client)) as browser:
        answer = await browser.post(
            "/console/new/file",
            data={"purpose": "fine-tune"},
            files={"file": ("rows.jsonl", ROW * 20)},
            headers=OWN_SITE,
        )
        assert answer.headers["location"].startswith("/console/new?file=file-")
        page = await browser.get(answer.headers["location"])
        assert "being checked" in page.text
        report = msgspec.json.encode({"errors": [FAULT], "warnings": []})
        await api.world.blobs.put(f"t/{client.headers['x-tenant']}/reports/{file_id}", report)
        shown = (await browser.get(f"/console/new/report?file={file_id}")).text
        assert "row 7" in shown
        assert "&lt;img" in shown
        assert "<img" not in shown
        form = {"model": "tiny-llama", "training_file": file_id, "once": "1", "suffix": "s"}
        costs = await browser.post("/console/new/estimate", data=form, headers=OWN_SITE)
        assert "Price, expected" in costs.text
        wrong = {**form, "n_epochs": "many"}
        refused = await browser.post("/console/new/estimate", data=wrong, headers=OWN_SITE)
        assert "n_epochs" in refused.text
        endless = {**form, "learning_rate_multiplier": "inf", "once": "é"}
        refused = await browser.post("/console/new", data=endless, headers=OWN_SITE)
        assert "learning_rate_multiplier" in refused.text
        addresses = {
            (await browser.post("/console/new", data=form, headers=OWN_SITE)).headers["location"]
            for _ in range(2)
        }
    assert len(addresses) == 1


async def test_a_file_is_uploaded_in_parts_by_who_began_it(api: ControlPlane) -> None:
    client, other = await api.tenant(), await api.tenant()
    console, body = console_of(api), ROW * 20
    there = "/console/new/uploads"
    async with signed_in(console, key_of(client)) as browser:
        about = {"filename": "rows.jsonl", "bytes": len(body), "purpose": "fine-tune"}
        begun = await browser.post(there, data=about, headers=OWN_SITE)
        path = f"{there}/{begun.json()['id']}"
        parts = [
            (await browser.post(f"{path}/parts", files={"data": part}, headers=OWN_SITE)).json()
            for part in (body[:99], body[99:])
        ]
        assert (await browser.post(f"{path}/complete")).status_code == 403, "of another site"
        few = {"part": parts[0]["id"]}
        refused = await browser.post(f"{path}/complete", data=few, headers=OWN_SITE)
        assert f"{len(body)} were declared" in refused.text
        async with signed_in(console, key_of(other)) as stranger:
            answer = await stranger.post(f"{path}/parts", files={"data": b"x"}, headers=OWN_SITE)
            assert answer.status_code == 404
        whole = {"part": [part["id"] for part in parts]}
        done = [
            (await browser.post(f"{path}/complete", data=whole, headers=OWN_SITE)).json()
            for _ in range(2)
        ]
        assert done[0] == done[1], "the script repeats what got no answer"
        assert "rows.jsonl" in (await browser.get(done[0]["address"])).text
        none = {**about, "bytes": "0"}
        refused = await browser.post(there, data=none, headers=OWN_SITE)
        assert (refused.status_code, "bytes" in refused.text) == (400, True)


def test_settings_that_are_left_out_are_for_the_service_to_choose() -> None:
    form = FormData(
        {"model": "m", "training_file": "f", "n_epochs": "3", "rank": "", "suffix": " "}
    )
    hyper = {"n_epochs": 3}
    assert body_of(form) == {
        "model": "m",
        "training_file": "f",
        "method": {"type": "supervised", "supervised": {"hyperparameters": hyper}},
    }
