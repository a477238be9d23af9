"""Evaluation items: each answer that is kept is a row of the next version of a data set."""

import json

import pytest

from services.gateway.console.playground import items
from tests.unit.services.gateway.console.consoles import OWN_SITE, console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ControlPlane

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
    monkeypatch.setattr(items, "BYTES_MAX", 10)
    async with signed_in(console_of(api), key_of(client)) as browser:
        assert (await browser.post(PATH, data=FORM, headers=OWN_SITE)).status_code == 200
        refused = await browser.post(PATH, data={**FORM, "answer": "b"}, headers=OWN_SITE)
        assert refused.status_code == 400
        assert "tunery file" in refused.text
