"""A downloaded folder beside its signature: every change of a file is named."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.unit.tunery.provenance.signed import NOW, TERMS, new_key, sign_folder, trust_in
from tunery.platform.blobs.base_files import hash_base
from tunery.provenance.envelopes import signed_bundle
from tunery.provenance.folders import compare_folder
from tunery.provenance.keys import SigningKey, Trust, Untrusted
from tunery.provenance.statements import lineage_statement

FILES = (
    "adapter_config.json",
    "adapter_model.safetensors",
    "bom.cdx.json",
    "lineage.intoto.json",
    "lineage.json",
)


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return new_key(tmp_path / "keys")


@pytest.fixture
def folder(key: SigningKey, tmp_path: Path) -> Path:
    sign_folder(tmp_path / "model", key)
    return tmp_path / "model"


def differences(folder: Path, key: SigningKey, *bases: str) -> dict[str, str]:
    compared = compare_folder(folder, trust_in(key), NOW, bases)
    return {file.name: file.difference for file in compared if file.difference is not None}


def test_a_folder_as_it_was_signed_has_no_differences(folder: Path, key: SigningKey) -> None:
    compared = compare_folder(folder, trust_in(key), NOW)
    assert [(file.name, file.difference) for file in compared] == [(name, None) for name in FILES]


@pytest.mark.parametrize("name", FILES)
def test_one_flipped_bit_is_named_with_its_file(name: str, folder: Path, key: SigningKey) -> None:
    data = (folder / name).read_bytes()
    for position in (0, len(data) // 2, len(data) - 1):
        flipped = bytearray(data)
        flipped[position] ^= 1
        (folder / name).write_bytes(flipped)
        assert list(differences(folder, key)) == [name]


def test_every_flipped_bit_of_the_signature_is_refused(folder: Path, key: SigningKey) -> None:
    signature = folder / "model.sig"
    data = signature.read_bytes()
    changed = json.loads(data)
    for position in range(0, len(data), 97):
        flipped = bytearray(data)
        flipped[position] ^= 1
        try:
            if json.loads(flipped) == changed:
                continue  # white space
        except ValueError:
            pass
        signature.write_bytes(flipped)
        with pytest.raises(Untrusted, match=r"model\.sig"):
            compare_folder(folder, trust_in(key), NOW)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(name: str, folder: Path, key: SigningKey) -> None:
    (folder / name).unlink()
    named = differences(folder, key)
    assert list(named) == [name]
    assert "missing" in named[name]


@pytest.mark.parametrize("name", ["adapter_model.bin", "deep/er/code.py"])
def test_an_added_file_is_named(name: str, folder: Path, key: SigningKey) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"x")
    assert differences(folder, key) == {name: "it is not signed: it was added"}


def test_a_link_to_the_same_bytes_is_named(folder: Path, key: SigningKey, tmp_path: Path) -> None:
    weights = folder / "adapter_model.safetensors"
    weights.rename(tmp_path / "elsewhere")
    weights.symlink_to(tmp_path / "elsewhere")
    assert "link" in differences(folder, key)["adapter_model.safetensors"]


def test_another_key_and_no_key_are_refused_by_name(folder: Path, tmp_path: Path) -> None:
    other = new_key(tmp_path / "other")
    with pytest.raises(Untrusted, match=r"model\.sig: it is signed with the key .*trusted keys"):
        compare_folder(folder, trust_in(other), NOW)
    with pytest.raises(Untrusted, match="the trusted keys are: none"):
        compare_folder(folder, Trust(), NOW)


def test_a_folder_without_a_signature_is_refused(folder: Path, key: SigningKey) -> None:
    (folder / "model.sig").unlink()
    with pytest.raises(Untrusted, match="nobody signed it"):
        compare_folder(folder, trust_in(key), NOW)


def test_a_lineage_that_another_key_signed_is_named(
    folder: Path, key: SigningKey, tmp_path: Path
) -> None:
    forged = signed_bundle(lineage_statement(TERMS, {}), new_key(tmp_path / "other"))
    (folder / "lineage.intoto.json").write_bytes(forged)
    assert "signed with the key" in differences(folder, key)["lineage.intoto.json"]


def name_base(folder: Path, **values: str | None) -> None:
    file = folder / "adapter_config.json"
    config = json.loads(file.read_bytes()) | values
    file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def test_a_named_base_model_must_be_permitted(folder: Path, key: SigningKey) -> None:
    name_base(folder, base_model_name_or_path="Org/Small", revision="c0ffee")
    named = differences(folder, key)["adapter_config.json"]
    assert named.endswith("signed is small: --base Org/Small@c0ffee permits it")
    assert differences(folder, key, "Org/Small@c0ffee") == {}
    assert list(differences(folder, key, "Org/Small")) == ["adapter_config.json"]
    name_base(folder, r="8")
    assert differences(folder, key, "Org/Small@c0ffee") == {
        "adapter_config.json": "it differs from the signed file"
    }


def with_base(folder: Path, key: SigningKey) -> Path:
    """A download with its base model, as `tunery model download --with-base` leaves it."""
    base = folder.parent / "small"
    base.mkdir(parents=True)
    (base / "config.json").write_text("{}")
    (base / "model.safetensors").write_bytes(b"weights")
    sha256 = hash_base(base)
    sign_folder(folder, key, replace(TERMS, lineage=replace(TERMS.lineage, base_sha256=sha256)))
    base.rename(folder / "base")
    name_base(folder, base_model_name_or_path=str((folder / "base").resolve()))
    return folder


@pytest.mark.parametrize("name", ["keeper", "a keeper", "deep/er/keeper"])
def test_first_hour2_u3_a_relative_folder_is_verified_as_an_absolute_one(
    name: str, key: SigningKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_base(tmp_path / name, key)
    monkeypatch.chdir(tmp_path)
    assert differences(Path(name), key) == differences(tmp_path / name, key) == {}
    monkeypatch.chdir(tmp_path / name)
    assert differences(Path(), key) == {}


def test_first_hour2_u3_a_folder_named_like_the_base_is_not_looked_for_in_the_working_directory(
    folder: Path, key: SigningKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = with_base(tmp_path / "other", key) / "base"
    base.rename(tmp_path / "Small")
    monkeypatch.chdir(tmp_path)
    name_base(folder, base_model_name_or_path="Small", revision=None)
    assert list(differences(folder, key)) == ["adapter_config.json"]


def test_first_hour2_u9_a_download_with_its_base_can_be_moved(
    key: SigningKey, tmp_path: Path
) -> None:
    moved = with_base(tmp_path / "keeper", key).rename(tmp_path / "moved")
    compared = compare_folder(moved, trust_in(key), NOW)
    assert {file.name for file in compared if file.difference} == set()
    (note,) = [file.note for file in compared if file.name == "adapter_config.json"]
    assert note.endswith(
        "which is not here; base/ has its files: `tunery model where FOLDER` names that"
    )
    (tmp_path / "keeper" / "base").mkdir(parents=True)  # another one where the first was
    (tmp_path / "keeper" / "base" / "config.json").write_text('{"other": 1}')
    assert list(differences(moved, key)) == ["adapter_config.json"]


def test_a_base_model_beside_the_adapter_has_the_signed_hash(
    key: SigningKey, tmp_path: Path
) -> None:
    folder = with_base(tmp_path / "model", key)
    assert differences(folder, key) == {}
    with (folder / "base" / "config.json").open("ab") as file:
        file.write(b" ")
    assert list(differences(folder, key)) == ["adapter_config.json", "base"]
