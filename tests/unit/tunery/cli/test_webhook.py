"""`tunery webhook`: what each command asks the API for, and when it fails."""

import time
from typing import Any

import pytest

from schemas.account import STANDARD_EVENT_TYPES
from tests.unit.tunery.cli.scripted_api import ScriptedApi, page, refusal

ENDPOINT = {
    "id": "we_1",
    "name": "",
    "url": "https://ci.example.com/h",
    "event_types": ["fine_tuning.job.failed"],
    "created_at": 1,
}
DELIVERY: dict[str, Any] = {
    "id": "del_1",
    "event": {"type": "fine_tuning.job.failed", "data": {"id": "ftjob-1"}},
    "outcome": "delivered",
    "attempts": 2,
    "status_code": 204,
    "created_at": 1,
}


@pytest.mark.parametrize(
    ("words", "asked", "body"),
    [
        (
            ["create", "https://e/h"],
            "POST /webhook_endpoints",
            {"url": "https://e/h", "name": "", "event_types": [*STANDARD_EVENT_TYPES]},
        ),
        (
            ["create", "https://e/h", "--event", "fine_tuning.job.running", "--name", "ci"],
            "POST /webhook_endpoints",
            {"url": "https://e/h", "name": "ci", "event_types": ["fine_tuning.job.running"]},
        ),
        (["change", "we_1", "--name", ""], "POST /webhook_endpoints/we_1", {"name": ""}),
        (
            ["rotate", "we_1"],
            "POST /webhook_endpoints/we_1/rotate_secret",
            {"keep_old_secret_active_for_24_hours": False},
        ),
        (
            ["rotate", "we_1", "--keep-old"],
            "POST /webhook_endpoints/we_1/rotate_secret",
            {"keep_old_secret_active_for_24_hours": True},
        ),
        (["confirm", "we_1", "abc"], "POST /webhook_endpoints/we_1/confirm", {"code": "abc"}),
        (["delete", "we_1"], "DELETE /webhook_endpoints/we_1", None),
    ],
)
def test_options_that_are_not_given_are_not_changed(
    words: list[str], asked: str, body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ScriptedApi(monkeypatch, {asked: ENDPOINT})
    done = api.run("webhook", *words)
    assert done.exit_code == 0, done.output
    assert (api.asked, api.bodies) == ([asked], [body])


def test_a_new_secret_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    created = ENDPOINT | {"signing_secret": "whsec_1"}
    api = ScriptedApi(monkeypatch, {"POST /webhook_endpoints": created})
    assert "whsec_1" in api.run("webhook", "create", "https://e/h").output


@pytest.mark.parametrize(
    ("answer", "exit_code", "shown"),
    [
        ({"success": True, "status_code": 204, "outcome": "delivered"}, 0, "204"),
        ({"success": False, "status_code": 500, "outcome": "pending"}, 1, "500"),
        ({"success": False, "status_code": None, "outcome": "gave_up"}, 1, "no answer"),
        ({"success": False, "status_code": None, "outcome": "refused"}, 1, "public addresses"),
    ],
)
def test_a_test_event_that_is_not_accepted_fails(
    answer: dict[str, Any], exit_code: int, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    event_type = STANDARD_EVENT_TYPES[0]
    test = answer | {"event_type": event_type}
    api = ScriptedApi(monkeypatch, {"POST /webhook_endpoints/we_1/test": test})
    done = api.run("webhook", "test", "we_1")
    assert (done.exit_code, shown in done.output) == (exit_code, True)
    assert api.bodies == [{"event_type": event_type}]


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (["del_1", "del_2"], {"delivery_ids": ["del_1", "del_2"]}),
        (["--hours", "2"], {"after": 1_000_000 - 7_200, "only_failed": True}),
        (["--hours", "0.5", "--all"], {"after": 1_000_000 - 1_800, "only_failed": False}),
    ],
)
def test_deliveries_are_named_by_id_or_by_time(
    words: list[str], body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    repeated = {"data": [DELIVERY], "has_more": True}
    api = ScriptedApi(monkeypatch, {"POST /webhook_endpoints/we_1/redeliver": repeated})
    done = api.run("webhook", "redeliver", "we_1", *words)
    assert (done.exit_code, api.bodies) == (0, [body])
    assert "run the command again with fewer hours" in done.stderr
    assert "ftjob-1" in done.stdout


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["redeliver", "we_1"], "Give the ids of deliveries, or --hours."),
        (["redeliver", "we_1", "del_1", "--hours", "1"], "Give the ids of deliveries, or --hours."),
        (["change", "we_1"], "Nothing to change"),
        (["create", "https://e/h", "--event", "job.exploded"], "job.exploded"),
    ],
)
def test_a_command_without_a_meaning_asks_for_nothing(
    words: list[str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ScriptedApi(monkeypatch, {})
    done = api.run("webhook", *words)
    assert (done.exit_code, api.asked) == (2, [])
    assert problem in done.output


def test_deliveries_come_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    first = {"data": [DELIVERY], "has_more": True, "last_id": "del_1"}
    path = "GET /webhook_endpoints/we_1/deliveries"
    api = ScriptedApi(monkeypatch, {path: [first, page(DELIVERY | {"id": "del_0"})]})
    done = api.run("webhook", "deliveries", "we_1")
    assert [line.split()[0] for line in done.output.splitlines()[1:]] == ["del_1", "del_0"]
    assert [request.url.params.get("after") for request in api.requests] == [None, "del_1"]


def test_an_unknown_endpoint_is_an_error_with_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = refusal(404, "webhook_not_found", "There is no such endpoint.")
    api = ScriptedApi(monkeypatch, {"DELETE /webhook_endpoints/we_9": refused})
    done = api.run("webhook", "delete", "we_9", "--json")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "There is no such endpoint. [webhook_not_found]" in done.stderr


def test_first_hour_17_the_setting_for_private_receivers_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warning = "nothing is sent unless the notifier has TUNERY_NOTIFIER_ALLOW_PRIVATE=1"
    created = {"id": "we_1", "url": "http://ci/h", "event_types": ["a"], "warning": warning}
    test = {"event_type": "a", "success": False, "status_code": None, "outcome": "refused"}
    api = ScriptedApi(
        monkeypatch,
        {"POST /webhook_endpoints": created, "POST /webhook_endpoints/we_1/test": test},
    )
    for words in (("create", "http://ci/h"), ("test", "we_1")):
        assert "TUNERY_NOTIFIER_ALLOW_PRIVATE=1" in " ".join(
            api.run("webhook", *words).output.split()
        )
