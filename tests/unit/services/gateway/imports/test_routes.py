"""Imports through the whole gateway, from a stand-in for OpenAI's API."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from schemas import errors
from schemas.imports import IMPORTS_OPEN_MAX, StartImport
from schemas.sealed import REDACTED, Sealed
from services.gateway.imports.running import destroy_keys, run_imports
from services.gateway.plan_limits import PLAN_LIMITS
from tests.unit.services.gateway.control_plane import BASE, ControlPlane, running
from tunery.confinement.confined import Confinement
from tunery.exit_kit.stand_in import KEY, AccountStub, account_stub, rows
from tunery.runtime.hosts.effects import EffectHost


@pytest_asyncio.fixture(loop_scope="session")
async def stub(
    api: ControlPlane,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> AsyncIterator[AccountStub]:
    """An account whose address the operator permits, and the host that reads accounts.

    By an indirect parameter, the account of another service.
    """
    effects = run_imports(api.deps, tmp_path, Confinement()), destroy_keys(api.deps, tmp_path)
    with account_stub(getattr(request, "param", AccountStub)) as account:
        allowed = account.url, account.url.removesuffix("/v1")
        monkeypatch.setattr(api.deps.settings, "import_urls", allowed)
        async with running([EffectHost(api.runtime, effects)]):
            yield account


async def begin(owner: httpx.AsyncClient, stub: AccountStub, key: str = KEY) -> dict[str, Any]:
    answer = await owner.post("/v1/imports", json={"key": key, "base_url": stub.url})
    assert answer.status_code == 200, answer.text
    begun: dict[str, Any] = answer.json()
    assert (begun["status"], begun["plan_file_id"]) == ("in_progress", None)
    return begun


async def ended(api: ControlPlane, owner: httpx.AsyncClient, begun: dict[str, Any]) -> Any:
    """Wait until an import has ended, and its key is destroyed."""
    path = f"/v1/imports/{begun['id']}"
    done = await api.until(owner, path, lambda answer: answer["status"] != "in_progress")
    await api.until(owner, path, lambda _: api.deps.seal._keys.find(begun["id"]) is None)
    return done


def recorded(api: ControlPlane) -> list[bytes]:
    """All bytes on the log."""
    topics = api.world.log.topics.values()
    return [record.value or b"" for topic in topics for part in topic for record in part.records]


async def test_exit_kit_an_account_is_read_over_http_and_its_key_is_forgotten(
    api: ControlPlane, stub: AccountStub, caplog: pytest.LogCaptureFixture
) -> None:
    """The files are stored, a job of the plan can be submitted, and the key cannot be opened."""
    owner = await api.tenant()
    stub.add_file("file-a", rows(20) + b"{broken\n")
    stub.add_job("ftjob-1", "file-a", model=BASE.base_id)
    stub.add_job("ftjob-2", "file-gone")
    keys: list[Sealed] = []
    decide = api.deps.commands.decide

    async def watched(*words: Any, **options: Any) -> Any:
        keys.extend(word.terms.key for word in words if isinstance(word, StartImport))
        return await decide(*words, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(api.deps.commands, "decide", watched)
        begun = await begin(owner, stub)
    [key] = keys
    assert key.key_id.startswith(f"{begun['id']}.")
    done = await ended(api, owner, begun)
    assert (done["status"], done["error"]) == ("completed", None)
    assert done["progress"]
    content = await owner.get(f"/v1/files/{done['plan_file_id']}/content")
    gone, moved = content.json()["jobs"]
    assert gone["request"] is None
    assert gone["reasons"][-1] == "its training file file-gone could not be had"
    assert (moved["old_model"], moved["left_out"]) == (BASE.base_id, 1)
    request = moved["request"]
    assert "version" not in request
    assert request["metadata"]["openai_job"] == "ftjob-1"
    file = (await owner.get(f"/v1/files/{request['training_file']}")).json()
    assert (file["purpose"], file["filename"]) == ("fine-tune", "file-a.jsonl")
    assert (await owner.get(f"/v1/files/{file['id']}/content")).content == rows(20)
    await api.validated(owner, file["id"])
    submitted = await owner.post("/v1/fine_tuning/jobs", json=request)
    assert submitted.status_code == 200, submitted.text
    assert api.deps.seal.open(key, "authorization") == REDACTED
    assert not any(KEY.encode() in record for record in recorded(api))
    assert KEY not in content.text + caplog.text


async def test_exit_kit_an_import_that_is_cancelled_asks_no_more_and_forgets_the_key(
    api: ControlPlane, stub: AccountStub
) -> None:
    owner = await api.tenant()
    asked, goes_on = threading.Event(), threading.Event()

    def wait(_path: str) -> None:
        asked.set()
        goes_on.wait(20)

    stub.before = wait
    stub.add_file("file-a", rows())
    begun = await begin(owner, stub)
    assert await asyncio.to_thread(asked.wait, 30)
    cancelled = (await owner.post(f"/v1/imports/{begun['id']}/cancel")).json()
    assert cancelled["status"] == "cancelled"
    await ended(api, owner, begun)
    goes_on.set()
    again = await owner.post(f"/v1/imports/{begun['id']}/cancel")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "illegal_state")
    assert stub.asked == ["/files"]
    assert (await owner.get("/v1/files")).json()["data"] == []


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        ((401, "Incorrect API key provided."), "refuses the key: it is revoked"),
        ((403, "Fine-tuning is not available."), "Fine-tuning is not available."),
    ],
)
async def test_exit_kit_an_import_that_fails_says_why_and_forgets_the_key(
    api: ControlPlane, stub: AccountStub, refusal: tuple[int, str], words: str
) -> None:
    owner = await api.tenant()
    stub.refusal = refusal
    done = await ended(api, owner, await begin(owner, stub))
    assert (done["status"], done["plan_file_id"]) == ("failed", None)
    assert words in done["error"]


async def test_exit_kit_an_import_without_a_place_for_files_fails_before_it_asks(
    api: ControlPlane, stub: AccountStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await api.tenant()
    limits = PLAN_LIMITS["standard"].model_copy(update={"files_max": 0})
    monkeypatch.setattr(api.deps.settings, "plan_limits", {**PLAN_LIMITS, "standard": limits})
    stub.add_file("file-a", rows())
    stub.add_job("ftjob-1", "file-a")
    done = await ended(api, owner, await begin(owner, stub))
    assert (done["status"], stub.asked) == ("failed", [])
    assert "files" in done["error"]


async def test_exit_kit_an_account_with_too_many_bytes_is_not_read(
    api: ControlPlane, stub: AccountStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.deps.settings, "import_bytes_max", 1_000_000_000)
    stub.add_file("file-a", rows(), bytes=2_000_000_000)
    owner = await api.tenant()
    done = await ended(api, owner, await begin(owner, stub))
    assert done["error"] == "the files have 2,000 MB; at most 1,000 are read"
    assert not stub.sent_bytes


async def test_exit_kit_a_file_that_is_too_large_here_is_named_and_the_others_are_there(
    api: ControlPlane, stub: AccountStub
) -> None:
    owner = await api.tenant()
    stub.add_file("file-a", rows())
    stub.add_file("file-b", rows(1_500))  # of 100,000 bytes, which the test permits
    stub.add_job("ftjob-1", "file-a")
    stub.add_job("ftjob-2", "file-b")
    done = await ended(api, owner, await begin(owner, stub))
    large, small = (await owner.get(f"/v1/files/{done['plan_file_id']}/content")).json()["jobs"]
    assert (large["request"], small["request"] is None) == (None, False)
    assert large["reasons"][-1] == "its training_file is too large for a file"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"key": "sk-1", "base_url": "http://127.0.0.1:9"}, "base_url"),
        ({"key": "sk-1", "base_url": "https://api.openai.com.example.com/v1"}, "base_url"),
        ({"key": "sk-1", "source": "azure"}, "base_url"),
        (
            {"key": "sk-1", "source": "azure", "base_url": "https://a.openai.azure.com@b.example"},
            "base_url",
        ),
        ({"key": "sk-1", "deployments": {"ft:a": "faq"}}, "deployments"),
        ({"key": "sk-1", "api_version": "2024-10-21", "source": "together"}, "api_version"),
        ({"key": "sk-1", "source": "azure", "api_version": "2024&x=1"}, "api_version"),
        ({"key": "sk-1", "source": "azure", "deployments": {"a": "../../faq"}}, "deployments.a"),
        ({"key": "sk-1", "source": "azure", "deployments": {"": "faq"}}, "deployments..[key]"),
        ({"key": "sk 1"}, "key"),
        ({"key": "sk-\n1"}, "key"),
        ({"key": ""}, "key"),
        ({}, "key"),
        ({"key": "sk-1", "source": "other"}, "source"),
    ],
)
async def test_exit_kit_a_bad_request_for_an_import_names_the_field_and_no_key(
    api: ControlPlane, body: dict[str, Any], param: str
) -> None:
    answer = await api.api.post("/v1/imports", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert "sk-1" not in answer.text


async def test_exit_kit_a_third_open_import_is_refused_and_its_key_destroyed(
    api: ControlPlane, stub: AccountStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = await api.tenant()
    goes_on = threading.Event()

    def wait(_path: str) -> None:
        goes_on.wait(20)

    stub.before = wait
    begun = [await begin(owner, stub) for _ in range(IMPORTS_OPEN_MAX)]
    destroyed: list[str] = []
    monkeypatch.setattr(api.deps.seal, "destroy", destroyed.append)
    refused = await owner.post("/v1/imports", json={"key": KEY, "base_url": stub.url})
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, errors.CONCURRENCY_LIMIT)
    assert len(destroyed) == 1
    monkeypatch.undo()
    goes_on.set()
    for each in begun:
        await owner.post(f"/v1/imports/{each['id']}/cancel")


async def test_exit_kit_a_read_that_was_killed_goes_on_where_it_ended(
    api: ControlPlane, stub: AccountStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The import is killed during a download; its next run does not fetch complete files again."""
    owner = await api.tenant()
    stub.add_file("file-a", rows(50))
    stub.add_file("file-b", rows(40))
    stub.add_job("ftjob-1", "file-b")
    processes: list[Any] = []
    start = asyncio.create_subprocess_exec

    async def started(*words: Any, **options: Any) -> Any:
        processes.append(await start(*words, **options))
        return processes[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", started)
    begun = await begin(owner, stub)

    def kill(path: str) -> None:
        if path == "/files/file-b/content" and len(processes) == 1:
            processes[0].kill()

    stub.before = kill
    done = await ended(api, owner, begun)
    assert done["status"] == "completed"
    assert len(processes) >= 2
    assert stub.asked.count("/files/file-a/content") == 1
