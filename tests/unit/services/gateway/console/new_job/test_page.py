"""A new job: the upload is passed on, the settings become a body, a press twice is one job."""

import ast
import json
import re
import shlex
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from starlette.datastructures import FormData

from services.gateway.console.new_job.page import body_of, snippets
from tests.unit.services.gateway.console.consoles import OWN_SITE, console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ROW, ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready
from tunery.cli.main import main
from tunery.plan.methods import methods_of_rows

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
        for shown in ("Price, expected", "Price, at most", "Time, at most", "curl", "Python"):
            assert shown in costs.text
        assert "tunery job submit --model tiny-llama" in costs.text
        for epochs in ("many", "9" * 400):
            wrong = {**form, "n_epochs": epochs}
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


async def test_every_faulty_row_is_shown_where_it_is(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    faults = [
        {**FAULT, "row": number, "line": number + 1, "excerpt": f"<i>{number}"}
        for number in range(1, 151)
    ]
    report = msgspec.json.encode({"errors": faults, "warnings": [{**FAULT, "row": 999}]})
    await api.world.blobs.put(f"t/{client.headers['x-tenant']}/reports/{file_id}", report)
    async with signed_in(console_of(api), key_of(client)) as browser:
        first = (await browser.get(f"/console/new/report?file={file_id}")).text
        assert "row 1, line 2" in first
        assert "&lt;i&gt;100" in first
        assert "row 101" not in first
        assert "1 to 100 of 151 findings" in first
        rest = (await browser.get(f"/console/new?file={file_id}&before=100")).text
        assert "row 101" in rest
        assert "row 999" in rest
        assert rest.count("state bad") == 50, "the last one is a warning"
        assert "101 to 151 of 151 findings" in rest


async def test_rows_are_shown_as_the_model_sees_them(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, file_id = await ready(api)
    query = f"training_file={file_id}&model=tiny-llama"
    async with signed_in(console_of(api), key_of(client)) as browser:
        page = await browser.get(f"/console/new?file={file_id}")
        assert "/console/new/rows" in page.text
        refused = await browser.get(f"/console/new/rows?{query}")
        assert "tokenizer.json" in refused.text, "this base model has no folder"

        async def ask(*_: object) -> dict[str, Any]:
            segments = [{"text": "<s>Who?", "learnt": False}, {"text": "<b>Me", "learnt": True}]
            row = {"row": 1, "part": 1, "parts": 1, "tokens": 5, "trainable_tokens": 2}
            return {"data": [{**row, "truncated": False, "segments": segments}], "problems": []}

        monkeypatch.setattr(api.deps.previews, "ask", ask)
        shown = (await browser.get(f"/console/new/rows?{query}")).text
        assert "&lt;s&gt;Who?<mark>&lt;b&gt;Me</mark>" in shown
        assert "5 tokens, 2 of them learnt" in shown
        assert "POST /v1/fine_tuning/preview" in shown
        assert (await browser.get("/console/new/rows?training_file=none")).status_code == 200


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


BODY = {
    "model": "tiny",
    "training_file": "file-1",
    "method": {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 3}}},
    "suffix": 'it\'s "x" $HOME',
    "lora": {"rank": 8},
}


def test_bases_f7_reasoning_is_left_out_where_the_form_says_so() -> None:
    asked = {"model": "m", "training_file": "f"}
    assert "training" not in body_of(FormData({**asked, "reasoning": "keep"}))
    body = body_of(FormData({**asked, "reasoning": "drop"}))
    assert body["training"] == {"reasoning": "drop"}
    assert "--set 'training.reasoning=\"drop\"'" in snippets(body)["the command line"]


async def test_a_file_of_pairs_is_trained_by_a_method_for_pairs(api: ControlPlane) -> None:
    client, _ = await ready(api)
    file_id = (await api.upload(client))["id"]
    await api.validated(client, file_id, dialect="dpo")
    form = {"model": "tiny-llama", "training_file": file_id, "n_epochs": "2", "once": "1"}
    async with signed_in(console_of(api), key_of(client)) as browser:
        page = await browser.get(f"/console/new?file={file_id}")
        offered = page.text.partition('<select name="method">')[2].partition("</select>")[0]
        assert re.findall("<option>([a-z]+)</option>", offered) == [*methods_of_rows("pairs")]
        part = {"hx-request": "true"}
        swapped = await browser.get(f"/console/new/report?file={file_id}", headers=part)
        assert '<label id="method" hx-swap-oob="true">' in swapped.text
        chosen = {**form, "method": "dpo"}
        costs = await browser.post("/console/new/estimate", data=chosen, headers=OWN_SITE)
        assert "--method dpo --epochs 2" in costs.text
        submitted = await browser.post("/console/new", data=chosen, headers=OWN_SITE)
        job_id = submitted.headers["location"].rpartition("/")[2]
    job = (await client.get(f"/v1/fine_tuning/jobs/{job_id}")).json()
    assert (job["method"]["type"], job["hyperparameters"]["n_epochs"]) == ("dpo", 2)


def test_curl_sends_the_body_as_it_is() -> None:
    text = snippets(BODY)["curl"]
    assert json.loads(text.split("<<'BODY'\n")[1].removesuffix("\nBODY")) == BODY


def test_python_has_the_fields_of_others_apart() -> None:
    call = ast.parse(snippets(BODY)["Python"]).body[-1]
    assert isinstance(call, ast.Assign)
    assert isinstance(call.value, ast.Call)
    arguments = {word.arg: ast.literal_eval(word.value) for word in call.value.keywords}
    assert arguments.pop("extra_body") == {"lora": BODY["lora"]}
    assert arguments == {name: value for name, value in BODY.items() if name != "lora"}


def test_the_command_is_one_that_the_command_line_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    words = shlex.split(snippets(BODY)["the command line"])
    assert words[0] == "tunery"
    done = CliRunner().invoke(main, [*words[1:], "--print-recipe", "--json"])
    assert done.exit_code == 0, done.output
    recipe = json.loads(done.output)
    assert recipe["suffix"] == BODY["suffix"]
    assert recipe["lora"] == BODY["lora"]
    assert "3" in json.dumps(recipe)
