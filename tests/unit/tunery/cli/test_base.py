"""`tunery base`: names of folders, and folders that are named in other ways."""

from pathlib import Path

import pytest

from tests.unit.tunery.cli.scripted_api import ScriptedApi, refusal

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
    done = api.run("base", "add", str(folder), *words)
    assert done.exit_code == 0, done.output
    assert api.bodies == [{"id": named, "path": str(folder), "licence": licence}]


def test_the_services_get_the_path_of_the_folder_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Services run elsewhere: a path of this shell, or a link of this user, may mean nothing."""
    folder, link = tmp_path / "real", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    api = ScriptedApi(monkeypatch, {"POST /bases": BASE})
    assert api.run("base", "add", "link").exit_code == 0
    assert api.bodies[0]["path"] == str(folder)
    assert api.bodies[0]["id"] == "real"


def test_a_folder_that_is_not_there_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "model.safetensors"
    file.touch()
    api = ScriptedApi(monkeypatch, {})
    for path in (file, tmp_path / "none"):
        assert api.run("base", "add", str(path)).exit_code == 2
    assert api.asked == []


def test_a_folder_without_a_model_is_refused_by_the_api(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = refusal(400, "invalid_base", "config.json is missing.")
    done = ScriptedApi(monkeypatch, {"POST /bases": refused}).run("base", "add", str(tmp_path))
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
        "ab" * 8,
        "gpt-4o-mini",
    ]


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
    assert api.run("base", "add", str(tmp_path), "--id", "x", *words).exit_code == 0
    body = {"id": "x", "path": str(tmp_path), "licence": "unknown", "aliases": ["a", "b"]}
    assert api.bodies == [{**body, "shared": False}]
