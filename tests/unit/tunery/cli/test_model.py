"""`tunery model`: which version a promotion expects, and downloads into a folder."""

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner, Result

from tests.unit.tunery.cli.scripted_api import ScriptedApi, refusal
from tests.unit.tunery.provenance.signed import new_key, sign_folder
from tunery.cli.main import main
from tunery.cli.model import CONFIG, base_folder, name_base
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
        "gate_job_id": "ftjob-1",
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


def test_a_whole_model_is_downloaded_as_it_is_and_needs_no_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("config.json", "model.safetensors")
    files = [{"name": name, "url": "http://s3/x", "bytes": 7, "sha256": "0"} for name in names]
    monkeypatch.setattr(Api, "fetch", lambda _, file, target: target.write_bytes(CONTENT))
    answer = {"files": files, "format": "transformers"}
    api = ScriptedApi(monkeypatch, {f"GET {path(NEW, '/adapter')}": answer})
    assert api.run("model", "download", NEW, str(tmp_path)).exit_code == 0
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == dict.fromkeys(
        names, CONTENT
    )
    refused = api.run("model", "download", NEW, str(tmp_path), "--with-base")
    assert refused.exit_code == 1
    assert "needs no base model" in refused.output
    assert "Leave --base and --with-base out." in refused.output


def test_files_are_written_into_the_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leaves the folder does not, whatever the answer says."""
    names = ("adapter_config.json", "../../outside.json")
    files = [
        {"name": name, "url": "http://s3/x", "bytes": 7, "sha256": sha256(CONTENT).hexdigest()}
        for name in names
    ]

    def fetch(_: Api, file: dict[str, Any], target: Path) -> None:
        target.write_bytes(CONTENT)

    monkeypatch.setattr(Api, "fetch", fetch)
    answers = {f"GET {path(NEW, '/adapter')}": {"files": files}, "GET /bases": {"data": []}}
    api = ScriptedApi(monkeypatch, answers)
    folder = tmp_path / "a" / "b"
    done = api.run("model", "download", NEW, str(folder))
    assert done.exit_code == 0, done.output
    written = {each.relative_to(tmp_path) for each in tmp_path.rglob("*") if each.is_file()}
    assert written == {Path("a/b/adapter_config.json"), Path("a/b/outside.json")}
    assert f"{folder}/outside.json" in done.output, "what is shown is where it is"


def downloaded(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str, **base: Any
) -> tuple[dict[str, Any], str]:
    """The configuration of an adapter after its download, and what was printed."""

    def fetch(_: Api, file: dict[str, Any], target: Path) -> None:
        target.write_text('{"base_model_name_or_path": "smol", "r": 8, "revision": null}')

    def fetch_base(_: Api, base_id: str, target: Path) -> None:
        assert base_id == "smol"
        target.mkdir()

    monkeypatch.setattr(Api, "fetch", fetch)
    monkeypatch.setattr(Api, "fetch_base", fetch_base)
    file = {"name": "adapter_config.json", "url": "http://s3/x", "bytes": 7, "sha256": "0" * 64}
    bases = [{"id": "smol", "source": None, "revision": None, **base}, {"id": "x", "source": "y"}]
    answers = {f"GET {path(NEW, '/adapter')}": {"files": [file]}, "GET /bases": {"data": bases}}
    done = ScriptedApi(monkeypatch, answers).run("model", "download", NEW, str(folder), *words)
    assert done.exit_code == 0, done.output
    return json.loads((folder / "adapter_config.json").read_bytes()), done.output


def test_first_hour_13_an_adapter_names_its_base_where_the_public_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, printed = downloaded(monkeypatch, tmp_path, source="Org/Smol", revision="ab" * 20)
    assert config == {"base_model_name_or_path": "Org/Smol", "r": 8, "revision": "ab" * 20}
    assert "no public name" not in printed


def test_first_hour_13_without_a_public_name_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, printed = downloaded(monkeypatch, tmp_path)
    assert config["base_model_name_or_path"] == "smol"
    assert "smol has no public name: --base FOLDER names it, --with-base downloads it" in printed


def test_first_hour_13_a_base_at_hand_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_hand = tmp_path / "smol"
    at_hand.mkdir()
    config, _ = downloaded(monkeypatch, tmp_path / "a", "--base", str(at_hand), source="Org/Smol")
    assert (config["base_model_name_or_path"], config["revision"]) == (str(at_hand), None)
    config, _ = downloaded(monkeypatch, tmp_path / "b", "--base", "Me/Copy")
    assert config["base_model_name_or_path"] == "Me/Copy"
    config, _ = downloaded(monkeypatch, tmp_path / "c", "--with-base")
    assert config["base_model_name_or_path"] == str(tmp_path / "c" / "base")
    both = ScriptedApi(monkeypatch, {}).run(
        "model", "download", NEW, str(tmp_path), "--with-base", "--base", "x"
    )
    assert both.exit_code == 2


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    """A signed folder, beside the data directory of the stack that signed it."""
    sign_folder(tmp_path / "model", new_key(tmp_path / "data" / "signing"))
    return tmp_path / "model"


def verify(folder: Path, *options: str | Path) -> Result:
    words = ("model", "verify", folder, "--data-dir", folder.parent / "data", *options)
    return CliRunner().invoke(main, [str(word) for word in words])


def test_a_folder_is_verified_without_an_api(signed: Path) -> None:
    done = verify(signed, "--json")
    assert done.exit_code == 0, done.output
    assert {row["difference"] for row in json.loads(done.stdout)} == {None}
    (signed / "adapter_model.safetensors").write_bytes(b"other")
    (signed / "adapter_model.bin").write_bytes(b"pickle")
    done = verify(signed, "--json")
    assert done.exit_code == 1
    differing = {row["file"]: row["difference"] for row in json.loads(done.stdout)}
    assert [name for name, difference in differing.items() if difference is not None] == [
        "adapter_model.bin",
        "adapter_model.safetensors",
    ]


def test_who_signed_a_folder_must_be_trusted(signed: Path, tmp_path: Path) -> None:
    new_key(tmp_path / "other")
    done = verify(signed, "--key", tmp_path / "other" / "public.pem")
    assert done.exit_code == 1
    assert "it is signed with the key" in done.output
    both = (tmp_path / "other" / "public.pem", tmp_path / "data" / "signing" / "public.pem")
    assert verify(signed, "--key", both[0], "--key", both[1]).exit_code == 0
    (tmp_path / "data" / "signing" / "public.pem").unlink()
    done = verify(signed)
    assert done.exit_code == 1
    assert "--key FILE" in done.output


def test_approvals_are_set_shown_and_given(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = {"id": "production", "required": 2, "approvers": ["key_a", "key_b"]}
    answers = {
        "POST /approval_rules": rule,
        "GET /approval_rules": {"data": [rule]},
        f"POST {path(NEW, '/approve')}": version(NEW, "dev"),
    }
    api = ScriptedApi(monkeypatch, answers)
    words = ("--required", "2", "--approver", "key_a", "--approver", "key_b")
    done = api.run("model", "approvals", "production", *words)
    assert done.exit_code == 0, done.output
    assert "key_a, key_b" in done.output
    assert api.bodies[0] == {
        "stage": "production",
        "required": 2,
        "approvers": ["key_a", "key_b"],
    }
    assert api.run("model", "approve", NEW, "production").exit_code == 0
    assert api.bodies[-1] == {"stage": "production"}
    wrong = api.run("model", "approvals", "production")
    assert (wrong.exit_code, "belong together" in wrong.output) == (2, True)


def test_a_history_names_who_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    change = {"created_at": 1, "change": "approval", "stage": "production", "key_id": "key_a"}
    answers = {f"GET {path(NEW, '/history')}": {"data": [change, {**change, "key_id": None}]}}
    done = ScriptedApi(monkeypatch, answers).run("model", "history", NEW)
    assert done.exit_code == 0, done.output
    assert done.output.count("approval") == 2
    assert done.output.count("key_a") == 1


def exported(folder: Path, target: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["model", "export", str(folder), str(target), *options])


def test_an_export_needs_the_base_model_at_hand(tmp_path: Path) -> None:
    assert "names a base model" in exported(tmp_path, tmp_path / "merged").output
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "Org/Small"}')
    done = exported(tmp_path, tmp_path / "merged")
    assert (done.exit_code, "Org/Small is not on this machine" in done.output) == (1, True)


def test_first_hour2_u9_report_17_a_moved_adapter_finds_the_base_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a moved keeper"
    (folder / "base").mkdir(parents=True)
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "/gone/base"}')
    assert base_folder(folder) == folder / "base"
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["model", "where", folder.name, "--json"])
    assert json.loads(done.stdout) == {"base": str(folder / "base")}
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(folder / "base")


@pytest.mark.train
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
def test_an_adapter_is_exported_with_its_base_model(tmp_path: Path) -> None:
    from tests.bases import tiny_base
    from tests.unit.services.engine.adapters import tiny_models

    tiny_models.answers(tokens=1)
    shutil.copytree(tiny_models.folder() / "adapter", tmp_path / "adapter")
    (tmp_path / "adapter" / "lineage.json").write_text("{}")
    base = str(tiny_base().dir)
    done = exported(tmp_path / "adapter", tmp_path / "merged", "--base", base, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["difference"] <= 6e-5
    assert (tmp_path / "merged" / "README.md").is_file()
    again = exported(tmp_path / "adapter", tmp_path / "merged", "--base", base)
    assert (again.exit_code, "exists" in again.output) == (1, True)


def foreign(folder: Path, *names: str) -> Path:
    """A folder with files of an adapter of elsewhere."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text("{}")
    return folder


def test_an_import_sends_settings_and_weights(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = foreign(tmp_path / "theirs", "adapter_config.json", "adapter_model.safetensors")
    api = ScriptedApi(monkeypatch, {"POST /models/import": {"id": "ftjob-9", "model": NEW}})
    done = api.run("model", "import", str(folder), "--base", "smol", "--suffix", "theirs")
    assert done.exit_code == 0, done.output
    assert "ftjob-9" in done.output
    form = api.requests[-1].content
    for part in (b'name="model"', b"smol", b'name="config"', b'name="suffix"', b"theirs"):
        assert part in form
    assert form.index(b'name="config"') < form.index(b'name="file"'), "it is checked on the way"


def test_an_import_says_what_a_folder_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    api = ScriptedApi(monkeypatch, {})
    pickled = foreign(tmp_path / "pickled", "adapter_config.json", "adapter_model.bin")
    done = api.run("model", "import", str(pickled), "--base", "smol")
    assert (done.exit_code, "safe_serialization" in done.output) == (1, True), done.output
    empty = foreign(tmp_path / "empty")
    done = api.run("model", "import", str(empty), "--base", "smol")
    assert (done.exit_code, "adapter_config.json cannot be read" in done.output) == (1, True)
    assert api.requests == []


def test_first_hour_13_only_the_base_is_named(tmp_path: Path) -> None:
    config = {"base_model_name_or_path": "smol", "peft_type": "LORA", "r": 8, "revision": None}
    (tmp_path / CONFIG).write_text(json.dumps(config))
    name_base(tmp_path, "Org/Smol", "ab" * 20)
    named = json.loads((tmp_path / CONFIG).read_bytes())
    assert named == config | {"base_model_name_or_path": "Org/Smol", "revision": "ab" * 20}
    name_base(tmp_path, "/srv/bases/smol", None)
    assert json.loads((tmp_path / CONFIG).read_bytes())["revision"] is None
