"""`tunery base`: names of folders, and folders that are named in other ways."""

import json
from collections.abc import Iterator
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import convert, to_builtins
from msgspec.structs import replace

from schemas.model import BaseProof
from services.gateway.models.base_folders import describe
from tests.bases import tiny_base
from tests.hub_server import COMMIT, HubServer, serving
from tests.unit.services.gateway.models.test_base_folders import a_base
from tests.unit.services.ingest.base import make_base
from tests.unit.tunery.cli.scripted_api import ScriptedApi, refusal
from tests.unit.tunery.plan.samples import PROOF
from tunery.plan.hyperparameters import resolve
from tunery.plan.memory import memory_bytes
from tunery.platform.blobs.base_files import base_files, hash_base

BASE = {
    "id": "smol",
    "sha256": "ab" * 32,
    "parameters": 134_515_008,
    "context_length": 8_192,
    "family": "llama",
    "licence": "Apache-2.0",
    "aliases": ["gpt-4o-mini"],
    "source": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "revision": "12fd25f77366fa6b3b4b768ec3050bf629380bac",
    "proof": None,
}


@pytest.mark.parametrize(
    ("words", "named", "licence"),
    [
        ([], "smollm2-360m-instruct", "unknown"),
        (["--id", "Smol", "--licence", "Apache-2.0"], "Smol", "Apache-2.0"),
    ],
)
def test_a_base_has_the_name_of_its_folder(
    words: list[str], named: str, licence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "SmolLM2-360M-Instruct"
    folder.mkdir()
    api = ScriptedApi(monkeypatch, {"POST /bases": BASE})
    done = api.run("base", "add", "--unchecked", str(folder), *words)
    assert done.exit_code == 0, done.output
    assert api.bodies == [{"id": named, "path": str(folder), "licence": licence}]


def test_bases_f7_a_template_makes_another_folder_that_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_base(tmp_path / "small")
    (folder / "config.json").write_text("{}")
    template = tmp_path / "reasons.jinja"
    template.write_text("{{ messages[0].content }}")
    api = ScriptedApi(monkeypatch, {"POST /bases": BASE})
    words = ("base", "add", "--unchecked", str(folder), "--chat-template", str(template))
    done = api.run(*words, "--eot-token", "<|im_end|>")
    assert done.exit_code == 0, done.output
    (body,) = api.bodies
    added = Path(body["path"])
    assert (body["id"], added.parent, added.name[:6]) == ("small", tmp_path, "small-")
    assert (added / "chat_template.jinja").read_text() == template.read_text()
    assert json.loads((added / "generation_config.json").read_bytes())["eos_token_id"] == [2]
    refused = api.run(*words, "--eot-token", "<|eot|>")
    assert (refused.exit_code, len(api.bodies)) == (1, 1)
    assert "[template_unusable] '<|eot|>' is no special token" in refused.output


def test_the_services_get_the_path_of_the_folder_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Services run elsewhere: a path of this shell, or a link of this user, may mean nothing."""
    folder, link = tmp_path / "real", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    api = ScriptedApi(monkeypatch, {"POST /bases": BASE})
    assert api.run("base", "add", "--unchecked", "link").exit_code == 0
    assert api.bodies[0]["path"] == str(folder)
    assert api.bodies[0]["id"] == "real"


def test_a_folder_that_is_not_there_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "model.safetensors"
    file.touch()
    api = ScriptedApi(monkeypatch, {})
    for path in (file, tmp_path / "none"):
        assert api.run("base", "add", "--unchecked", str(path)).exit_code == 2
    assert api.asked == []


def test_a_folder_without_a_model_is_refused_by_the_api(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = refusal(400, "invalid_base", "config.json is missing.")
    done = ScriptedApi(monkeypatch, {"POST /bases": refused}).run(
        "base", "add", "--unchecked", str(tmp_path)
    )
    assert (done.exit_code, "[invalid_base]" in done.output) == (1, True)


def test_bases_are_listed_by_size_and_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, {"GET /bases": {"data": [BASE]}})
    (row,) = api.run("base", "list").output.splitlines()[1:]
    assert row.split() == [
        "smol",
        "135",
        "M",
        "8192",
        "llama",
        "Apache-2.0",
        "no",
        "gpt-4o-mini",
        "ab" * 32,
    ]


def test_bases_that_were_proven_with_other_libraries_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def proven(**libraries: str) -> dict[str, Any]:
        return BASE | {"proof": to_builtins(replace(PROOF, libraries=libraries))}

    older = proven(msgspec="0.1", nowhere="1.0")
    bases = [proven(msgspec=version("msgspec")), older]
    api = ScriptedApi(monkeypatch, {"GET /bases": {"data": bases}, "GET /models/smol": older})
    first, second = api.run("base", "list").output.splitlines()[1:]
    assert (" yes " in first, " with others " in second) == (True, True)
    shown = api.run("base", "show", "smol").output
    assert f"msgspec {version('msgspec')}: `tunery base prove` tries it again" in shown


def test_first_hour_s12_a_base_has_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, {"POST /bases/smol/aliases": BASE})
    done = api.run("base", "alias", "smol", "gpt-4o-mini")
    assert (done.exit_code, api.bodies) == (0, [{"aliases": ["gpt-4o-mini"]}])
    assert "gpt-4o-mini" in done.output
    assert (
        "HuggingFaceTB/SmolLM2-135M-Instruct@12fd25f77366fa6b3b4b768ec3050bf629380bac"
        in done.output
    )


def test_first_hour_s12_what_is_not_given_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ScriptedApi(monkeypatch, {"POST /bases": BASE})
    words = ("--alias", "a", "--alias", "b", "--no-share")
    assert api.run("base", "add", "--unchecked", str(tmp_path), "--id", "x", *words).exit_code == 0
    body = {"id": "x", "path": str(tmp_path), "licence": "unknown", "aliases": ["a", "b"]}
    assert api.bodies == [{**body, "shared": False}]


def test_first_hour_s03_a_base_is_added_by_its_name_at_a_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ScriptedApi(monkeypatch, {"POST /bases": BASE})
    monkeypatch.setenv("TUNERY_CACHE_DIR", str(tmp_path / "cache"))
    with serving(HubServer({"org/Smol-1B": a_base(tmp_path / "origin")})) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        done = api.run("base", "add", "--unchecked", "org/Smol-1B@v1", "--alias", "gpt-4o-mini")
        assert done.exit_code == 0, done.output
        unknown = api.run("base", "add", "--unchecked", "org/none")
        other = api.run(
            "base",
            "add",
            "--unchecked",
            "org/Smol-1B",
            "--into",
            str(tmp_path / "own"),
            "--id",
            "x",
        )
    (body, second) = api.bodies
    folder = tmp_path / "cache" / "bases" / f"org--Smol-1B-{COMMIT[:12]}"
    assert body == {
        "id": "smol-1b",
        "path": str(folder),
        "licence": "apache-2.0",
        "aliases": ["gpt-4o-mini"],
        "source": "org/Smol-1B",
        "revision": COMMIT,
    }
    assert hash_base(folder) == hash_base(tmp_path / "origin")
    assert (unknown.exit_code, "has no org/none@main" in unknown.output) == (1, True)
    assert (other.exit_code, second["id"], second["path"]) == (0, "x", str(tmp_path / "own"))


def test_first_hour_s03_a_base_is_sent_to_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = a_base(tmp_path / "origin")
    (origin / "pytorch_model.bin").write_bytes(b"code")
    names = [path.name for path in base_files(origin)]
    hashes = [sha256((origin / name).read_bytes()).hexdigest() for name in names]
    api = ScriptedApi(
        monkeypatch,
        {
            "POST /uploads": {"id": "upload-1"},
            "POST /uploads/upload-1/parts": [{"id": "p", "sha256": text} for text in hashes],
            "POST /uploads/upload-1/complete": [{"file": {"id": f"file-{n}"}} for n in names],
            "POST /bases/folders": {"path": "/srv/bases/origin-1"},
            "POST /bases": BASE,
            **{f"DELETE /files/file-{name}": {} for name in names},
        },
    )
    done = api.run("base", "add", "--unchecked", str(origin), "--upload")
    assert done.exit_code == 0, done.output
    posts = [request for request in api.requests if request.method == "POST"]
    bodies = [json.loads(post.content) for post in posts if b"form-data" not in post.content]
    declared = [body for body in bodies if "purpose" in body]
    assert [(body["filename"], body["purpose"]) for body in declared] == [
        (name, "base-model") for name in names
    ]
    folder, added = (body for body in bodies if "name" in body or "path" in body)
    assert folder == {"name": "origin", "files": {name: f"file-{name}" for name in names}}
    assert added == {"id": "origin", "path": "/srv/bases/origin-1", "licence": "unknown"}
    assert [request.method for request in api.requests].count("DELETE") == len(names)


def test_first_hour_13_a_shared_base_is_fetched_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = a_base(tmp_path / "origin")
    files = [{"id": path.name, "bytes": path.stat().st_size} for path in base_files(origin)]
    answers: dict[str, Any] = {
        f"GET /models/smol/files/{path.name}": httpx.Response(200, content=path.read_bytes())
        for path in base_files(origin)
    }
    answers["GET /models/smol/files"] = {"data": files}
    answers["GET /models/smol"] = [BASE | {"sha256": hash_base(origin)}, BASE]
    api = ScriptedApi(monkeypatch, answers)
    assert api.run("base", "fetch", "smol", str(tmp_path / "copy")).exit_code == 0
    assert hash_base(tmp_path / "copy") == hash_base(origin)
    differs = api.run("base", "fetch", "smol", str(tmp_path / "copy"))
    assert (differs.exit_code, "does not hold smol" in differs.output) == (1, True)


@pytest.mark.parametrize(("drifted", "status"), [(None, 0), ("1" * 64, 1)])
def test_a_check_says_whether_a_base_model_has_changed(
    drifted: str | None, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = {"id": "smol", "sha256": "0" * 64, "drifted_sha256": drifted}
    api = ScriptedApi(monkeypatch, {"POST /bases/smol/check": checked})
    done = api.run("base", "check", "smol")
    assert done.exit_code == status, done.output
    assert ("stale" in done.output) is (status == 1)


@pytest.mark.train
def test_a_base_that_cannot_be_loaded_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ScriptedApi(monkeypatch, {"POST /bases": BASE})
    done = api.run("base", "add", str(a_base(tmp_path / "smol")))
    assert (done.exit_code, api.asked) == (1, [])
    assert "[does_not_load]" in done.output
    assert "--unchecked" in done.output


@pytest.mark.train
def test_a_base_is_tried_and_a_note_says_that_it_guesses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ScriptedApi(monkeypatch, {"POST /bases": BASE})
    done = api.run("base", "add", str(tiny_base().dir), "--id", "x")
    assert (done.exit_code, len(api.bodies)) == (0, 1), done.output
    assert "as chance does" in done.output
    proof = convert(api.bodies[0]["proof"], BaseProof)
    assert proof.adaptations == ("lora", "full")
    assert "rows with reasoning are refused" in done.output
    base = describe("x", tiny_base().dir, "")
    for adaptation, peak in (("lora", proof.lora_bytes), ("full", proof.full_bytes)):
        asked: dict[str, Any] = {"adaptation": adaptation, "precision": "fp32", "batch_size": 1}
        asked |= {"dropout": 0, "max_length": proof.step_tokens}
        hyper, _ = resolve(asked, base, None, 1)
        assert memory_bytes(base, hyper, "cpu") == pytest.approx(peak, rel=0.15)


def test_what_a_base_was_shown_to_do_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    proof = to_builtins(PROOF)
    api = ScriptedApi(monkeypatch, {"GET /models/smol": [BASE | {"proof": proof}, BASE]})
    shown = [line.split() for line in api.run("base", "show", "smol").output.splitlines()]
    assert ["packs", "no"] in shown
    assert ["adapters", "on", "in_proj,", "q_proj"] in shown
    (memory,) = (" ".join(line) for line in shown if line[0] == "memory")
    assert "weights 16.00 GB, LoRA step 1.14 GB, full step 1.22 GB; steps of 432 tokens" in memory
    assert memory.endswith(
        "of the small model; layers keep 3.0 times what is usual, and plans count it"
    )
    assert "nothing" in api.run("base", "show", "smol").output


def test_bases_that_were_proven_with_other_libraries_are_proven_again_where_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tunery.cli import base

    old = to_builtins(replace(PROOF, libraries={"transformers": "4.0"}))
    new: dict[str, Any] = to_builtins(replace(PROOF, packs=True, libraries={"transformers": "5.0"}))
    new |= {name: [*new[name]] for name in ("adaptations", "targets")}
    folders: list[Path] = []

    def proof_of(folder: Path) -> dict[str, Any]:
        folders.append(folder)
        return new

    monkeypatch.setattr(base, "_try", proof_of)
    checked = BASE | {"proof": old, "path": str(tmp_path), "drifted_sha256": None}
    answers = {
        "GET /bases": {"data": [BASE | {"id": "untried"}, checked], "has_more": False},
        "POST /bases/smol/check": [checked, checked | {"path": "/none"}],
        "POST /bases": BASE | {"proof": new},
    }
    api = ScriptedApi(monkeypatch, answers)
    done = api.run("base", "prove")
    assert (done.exit_code, folders) == (0, [tmp_path]), done.output
    body = {"id": "smol", "path": str(tmp_path), "licence": BASE["licence"], "proof": new}
    assert api.bodies[-1] == body
    assert "transformers 5.0" in done.output
    elsewhere = api.run("base", "prove", "smol")
    assert (elsewhere.exit_code, "/none is not on this machine" in elsewhere.output) == (1, True)


def test_a_proof_that_takes_too_long_leaves_the_base_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tunery.cli import base

    answers: Iterator[Any] = iter(({"notes": [], "problems": []}, "it took longer than 900 s"))
    monkeypatch.setattr(base, "run_program", lambda *_, **__: next(answers))
    api = ScriptedApi(monkeypatch, {"POST /bases": BASE})
    done = api.run("base", "add", str(tiny_base().dir))
    assert (done.exit_code, "proof" in api.bodies[0]) == (0, False), done.output
    assert "nothing was proven of it: it took longer" in done.output
