"""The playground: both sides answer in one stream; a refusal is shown where the answer would be."""

import asyncio
import json

import pytest

from services.gateway.console.playground import page
from tests.unit.services.gateway.chat.scripted_engine import ScriptedEngine
from tests.unit.services.gateway.console.consoles import OWN_SITE, console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ControlPlane


async def test_a_model_that_does_not_exist_says_so_beside_the_other_answer(
    api: ControlPlane,
) -> None:
    client = await api.tenant()
    async with signed_in(console_of(api), key_of(client)) as browser:
        form = {"a": "tiny-llama", "b": "<b>none", "user": "Hi", "temperature": "0"}
        answer = await browser.post("/console/playground/ask", data=form, headers=OWN_SITE)
    assert answer.headers["content-type"].startswith("text/event-stream")
    last = answer.text.rstrip().rpartition("\n\n")[2]
    assert last.count('class="card"') == 2
    assert "&lt;b&gt;none" in last
    assert "<b>none" not in last
    assert "does not exist" in last


async def test_a_temperature_that_is_no_number_is_refused_by_the_api(api: ControlPlane) -> None:
    client = await api.tenant()
    async with signed_in(console_of(api), key_of(client)) as browser:
        for temperature in ("warm", "nan", "1e999"):
            form = {"a": "tiny-llama", "user": "Hi", "temperature": temperature}
            answer = await browser.post("/console/playground/ask", data=form, headers=OWN_SITE)
            assert "temperature" in answer.text, temperature


async def test_a_blind_answer_is_named_after_the_vote(api: ControlPlane) -> None:
    client = await api.tenant()
    async with signed_in(console_of(api), key_of(client)) as browser:
        form = {"a": "tiny-llama", "b": "other", "user": "Hi", "blind": "yes"}
        answer = await browser.post("/console/playground/ask", data=form, headers=OWN_SITE)
    last = answer.text.rstrip().rpartition("\n\n")[2]
    assert '<bdi data-name="tiny-llama">Answer ' in last
    assert 'data-pair="other / tiny-llama"' in last


async def test_an_engine_that_is_away_is_asked_again(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, engine = await api.tenant(), api.deps.engine
    assert isinstance(engine, ScriptedEngine)
    monkeypatch.setattr(page, "AGAIN_S", 2 * page.EVERY_S)
    form = {"a": "tiny-llama", "user": "Hi"}
    async with signed_in(console_of(api), key_of(client)) as browser:
        engine.begin(away=True)
        asking = asyncio.create_task(
            browser.post("/console/playground/ask", data=form, headers=OWN_SITE)
        )
        while len(engine.asked) < 5:  # noqa: ASYNC110  # it is asked again and again
            await asyncio.sleep(0.01)
        engine.begin()
        answer = (await asking).text
        assert "It is asked again every few seconds" in answer
        assert '<div class="answer" dir="auto">Hello</div>' in answer.replace("\ndata: ", "")
        monkeypatch.setattr(page, "LOADING_S_MAX", 0)
        engine.begin(away=True)
        given_up = await browser.post("/console/playground/ask", data=form, headers=OWN_SITE)
        assert "notice bad" in given_up.text
        engine.begin()


MESSAGES = [{"role": "user", "content": "Who keeps the lamp? é"}]
FORM = {"messages": json.dumps(MESSAGES), "answer": "<b>I"}
PATH = "/console/playground/items"


async def test_an_answer_is_added_to_the_data_set_once(api: ControlPlane) -> None:
    client, other = await api.tenant(), await api.tenant()
    async with signed_in(console_of(api), key_of(client)) as browser:
        saved = await browser.post(PATH, data=FORM, headers=OWN_SITE)
        assert "Saved as row 1 of" in saved.text
        assert "evaluation@1" in saved.text
        again = await browser.post(PATH, data=FORM, headers=OWN_SITE)
        assert "It was there already: as row 1 of" in again.text
        second = {**FORM, "answer": "You"}
        assert "row 2 of" in (await browser.post(PATH, data=second, headers=OWN_SITE)).text
        for messages in ("[", "[" * 100_000, "{}", ""):
            wrong = {"messages": messages, "answer": "x"}
            answer = await browser.post(PATH, data=wrong, headers=OWN_SITE)
            assert answer.status_code == 400, messages[:9]
        assert (await browser.post(PATH, data=FORM)).status_code == 403, "of another site"
    files = (await client.get("/v1/files?dataset=evaluation")).json()["data"]
    assert [file["dataset"] for file in files] == ["evaluation@2", "evaluation@1"]
    content = await client.get(f"/v1/files/{files[0]['id']}/content")
    rows = [json.loads(line) for line in content.text.splitlines()]
    assert [row["messages"][-1] for row in rows] == [
        {"role": "assistant", "content": "<b>I"},
        {"role": "assistant", "content": "You"},
    ]
    assert rows[0]["messages"][:-1] == MESSAGES
    assert (await other.get("/v1/files?dataset=evaluation")).json()["data"] == []


async def test_a_large_data_set_is_left_to_other_tools(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await api.tenant()
    monkeypatch.setattr(page, "BYTES_MAX", 10)
    async with signed_in(console_of(api), key_of(client)) as browser:
        assert (await browser.post(PATH, data=FORM, headers=OWN_SITE)).status_code == 200
        refused = await browser.post(PATH, data={**FORM, "answer": "b"}, headers=OWN_SITE)
        assert refused.status_code == 400
        assert "tunery file" in refused.text
