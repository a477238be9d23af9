"""`tunery model`: which version a promotion expects, and downloads into a folder."""

from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.unit.tunery.cli.scripted_api import ScriptedApi, refusal
from tunery.client import Api

NEW, OLD, OTHER = "ft:smol:local:demo:2", "ft:smol:local:demo:1", "ft:smol:local:else:1"
CONTENT = b"weights"


def version(model_id: str, stage: str, series: str = "demo") -> dict[str, Any]:
    return {
        "id": model_id,
        "stage": stage,
        "series": series,
        "quarantined": False,
        "verdict": "pass",
        "parent": "smol",
        "job_id": "ftjob-1",
        "created": 1,
        "type": "fine-tuned",
        "sha256": "0" * 64,
    }


def path(model_id: str, action: str = "") -> str:
    return f"/models/{quote(model_id, safe='')}{action}".replace("%3A", ":")


VERSIONS = {"data": [version(OTHER, "production", "else"), version(OLD, "production")]}


def test_a_promotion_expects_the_version_that_the_series_has_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {
        f"GET {path(NEW)}": version(NEW, "staging"),
        "GET /models": VERSIONS,
        f"POST {path(NEW, '/promote')}": version(NEW, "production"),
    }
    api = ScriptedApi(monkeypatch, answers)
    done = api.run("model", "promote", NEW, "production")
    assert done.exit_code == 0, done.output
    assert api.bodies[-1] == {"stage": "production", "expected": OLD}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["staging"], None),  # nothing of the series is there
        (["dev"], None),  # holds many, so that nothing can be expected
        (["production", "--expected", OTHER], OTHER),
    ],
)
def test_what_else_a_promotion_may_expect(
    words: list[str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {
        f"GET {path(NEW)}": version(NEW, "dev"),
        "GET /models": VERSIONS,
        f"POST {path(NEW, '/promote')}": version(NEW, words[0]),
    }
    api = ScriptedApi(monkeypatch, answers)
    assert api.run("model", "promote", NEW, *words).exit_code == 0
    assert api.bodies[-1] == {"stage": words[0], "expected": expected}


def test_a_move_that_came_first_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = refusal(409, "stage_changed", "Another version is in production now.")
    answers = {f"POST {path(NEW, '/promote')}": refused}
    api = ScriptedApi(monkeypatch, answers)
    done = api.run("model", "promote", NEW, "production", "--expected", OLD)
    assert (done.exit_code, len(api.asked)) == (1, 1)
    assert "[stage_changed]" in done.output


def test_a_version_in_quarantine_is_listed_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {"data": [version(NEW, "staging") | {"quarantined": True}, version(OLD, "dev")]}
    api = ScriptedApi(monkeypatch, {"GET /models": listed})
    rows = [line.split()[:2] for line in api.run("model", "list").output.splitlines()[1:]]
    assert rows == [[NEW, "quarantined"], [OLD, "dev"]]


@pytest.mark.parametrize("stage", ["dev", "archived"])
def test_only_a_stage_of_one_version_rolls_back(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ScriptedApi(monkeypatch, {})
    assert (api.run("model", "rollback", NEW, stage).exit_code, api.asked) == (2, [])


def test_files_are_written_into_the_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leaves the folder does not, whatever the answer says."""
    names = ("adapter.safetensors", "../../outside.json")
    files = [
        {"name": name, "url": "http://s3/x", "bytes": 7, "sha256": sha256(CONTENT).hexdigest()}
        for name in names
    ]

    def fetch(_: Api, file: dict[str, Any], target: Path) -> None:
        target.write_bytes(CONTENT)

    monkeypatch.setattr(Api, "fetch", fetch)
    api = ScriptedApi(monkeypatch, {f"GET {path(NEW, '/adapter')}": {"files": files}})
    folder = tmp_path / "a" / "b"
    done = api.run("model", "download", NEW, str(folder))
    assert done.exit_code == 0, done.output
    written = {each.relative_to(tmp_path) for each in tmp_path.rglob("*") if each.is_file()}
    assert written == {Path("a/b/adapter.safetensors"), Path("a/b/outside.json")}
    assert f"{folder}/outside.json" in done.output, "what is shown is where it is"
