"""Files of models: verified before they are converted, and refused by name."""

import json
import os
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import gguf
import pytest
from msgspec.structs import replace

from schemas.training import ADAPTER_FILES, BlobFile
from services.engine.adapters import weights as converting
from services.engine.adapters.plain_weights import PlainWeights
from services.engine.adapters.prompts import Prompts
from services.engine.adapters.weights import (
    ConvertedWeights,
    digest_of,
    link_base,
    with_plain_scale,
)
from services.engine.ports import Refusal
from tests.bases import tiny_base
from tests.unit.services.engine.adapters import tiny_models
from tests.unit.tunery.data.tokens.test_base_variants import REASONS
from tunery.data.tokens.base_variants import write_variant
from tunery.data.tokens.tokenizer import Tokenizer
from tunery.platform.blobs.base_files import hash_base
from tunery.runtime.blobs.abstract import BlobCorrupt
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.work.engine import FAILED, STALE_BASE, UNSUPPORTED, EngineModel, Question, Sampling
from tunery.work.own_chat import OwnChat

LORA: dict[str, Any] = {"r": 16, "lora_alpha": 32, "use_rslora": False, "modules_to_save": None}


def base_folder(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "modeling_own.py").write_text("raise SystemExit")
    return folder


def model(base: Path, files: tuple[BlobFile, ...] = ()) -> EngineModel:
    return EngineModel("tiny", str(base), hash_base(base), 512, files)


def test_rank_stabilised_scales_are_those_of_peft() -> None:
    plain = with_plain_scale({**LORA, "use_rslora": True})
    assert plain["lora_alpha"] / plain["r"] == LORA["lora_alpha"] / LORA["r"] ** 0.5
    assert with_plain_scale(LORA) == LORA


@pytest.mark.parametrize(
    "option",
    [
        {"use_dora": True},
        {"modules_to_save": ["lm_head"]},
        {"alpha_pattern": {"q_proj": 8}},
        {"use_rslora": True, "rank_pattern": {"q_proj": 8}},
    ],
)
def test_what_llama_cpp_computes_otherwise_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refused:
        with_plain_scale({**LORA, **option})
    assert refused.value.code == UNSUPPORTED


@pytest.mark.train
async def test_bases_f7_answers_end_in_llama_cpp_at_the_token_that_a_base_was_added_with(
    tmp_path: Path,
) -> None:
    plain = Path(shutil.copytree(tiny_base().dir, tmp_path / "plain"))
    (plain / "chat_template.jinja").unlink()
    base = write_variant(plain, REASONS, ("<|im_start|>",))
    files = await ConvertedWeights(MemoryBlobs(), tmp_path / "engine", 4).fetch(model(base))
    fields = gguf.GGUFReader(files.base).fields
    words = Tokenizer.load(base)
    assert [fields["tokenizer.ggml.eos_token_id"].contents()] == words.encode_text("<|im_start|>")
    assert fields["tokenizer.chat_template"].contents() == REASONS
    asked = Question(model(base), ({"role": "user", "content": "Why?"},), Sampling())
    shown = words.decode(list(Prompts(files).encode(asked)))
    assert shown == "<|im_start|>user\nWhy?<|im_end|><|im_start|>assistant\n"


@pytest.mark.train
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
async def test_bases_f7_a_checkpoint_has_a_tokenizer_by_the_texts_of_its_job(
    tmp_path: Path,
) -> None:
    blobs = MemoryBlobs()
    tiny_models.answers()
    adapter = await tiny_models.uploaded(blobs)
    of_base = tiny_models.engine_model(adapter)
    checkpoint = replace(of_base, chat=OwnChat(REASONS, ("<|im_start|>",)))
    assert digest_of(checkpoint) != digest_of(of_base)
    weights = ConvertedWeights(blobs, tiny_models.folder() / "engine", 8)
    files = await weights.fetch(checkpoint)
    assert files.tokenizer is not None
    assert Tokenizer.load(files.tokenizer).eos == "<|im_start|>"
    assert (await weights.fetch(of_base)).tokenizer is None
    unknown = replace(of_base, chat=OwnChat(None, ("<|eot|>",)))
    with pytest.raises(Refusal, match=UNSUPPORTED):
        await PlainWeights(blobs, tmp_path / "plain", 2).fetch(unknown)


async def test_bases_f7_nothing_is_left_of_a_version_that_cannot_be_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run_script(script: str, _: Any, converted: Path, __: Path) -> None:
        if "lora" in script:
            raise Refusal(UNSUPPORTED, "")
        converted.touch()

    monkeypatch.setattr(converting, "run_script", run_script)
    weights, settings = ADAPTER_FILES
    contents = {weights: b"w", settings: json.dumps(LORA).encode(), "tokenizer.json": b"{}"}
    blobs = MemoryBlobs()
    for name, content in contents.items():
        await blobs.put(name, content)
    files = tuple(
        BlobFile(name=name, blob=name, sha256=sha256(content).hexdigest(), bytes=len(content))
        for name, content in contents.items()
    )
    base, folder = base_folder(tmp_path / "base"), tmp_path / "engine"
    with pytest.raises(Refusal):
        await ConvertedWeights(blobs, folder, 4).fetch(model(base, files))
    assert [path.suffix for path in folder.iterdir()] == [".gguf"]


def test_a_script_sees_no_code_beside_the_weights(tmp_path: Path) -> None:
    linked = link_base(base_folder(tmp_path / "base"), tmp_path / "linked")
    assert {path.name for path in linked.iterdir()} == {"config.json", "model.safetensors"}


def test_an_adapter_has_another_file_for_each_base(tmp_path: Path) -> None:
    base = base_folder(tmp_path / "base")
    file = BlobFile(name="adapter_model.safetensors", blob="t/a/b", sha256="ab" * 32, bytes=1)
    first = model(base, (file,))
    (base / "model.safetensors").write_bytes(b"others")
    assert digest_of(first) != digest_of(model(base, (file,)))


async def test_a_base_whose_bytes_changed_is_refused(tmp_path: Path) -> None:
    base = base_folder(tmp_path / "base")
    added = model(base)
    (base / "model.safetensors").write_bytes(b"others")
    with pytest.raises(Refusal) as refused:
        await ConvertedWeights(MemoryBlobs(), tmp_path / "engine", 2).fetch(added)
    assert refused.value.code == STALE_BASE


async def test_a_base_that_is_not_on_this_machine_is_refused(tmp_path: Path) -> None:
    added = model(base_folder(tmp_path / "base"))
    moved = EngineModel("tiny", str(tmp_path / "gone"), added.base_sha256, 512)
    with pytest.raises(Refusal) as refused:
        await ConvertedWeights(MemoryBlobs(), tmp_path / "engine", 2).fetch(moved)
    assert refused.value.code == FAILED


def with_converted_base(folder: Path) -> tuple[ConvertedWeights, Path]:
    """Weights whose base model needs no conversion any more."""
    base = base_folder(folder / "base")
    (folder / "engine").mkdir()
    (folder / "engine" / f"{hash_base(base)}.gguf").write_bytes(b"converted")
    return ConvertedWeights(MemoryBlobs(), folder / "engine", 2), base


async def test_a_converted_base_is_found_again(tmp_path: Path) -> None:
    weights, base = with_converted_base(tmp_path)
    files = await weights.fetch(model(base))
    assert files.base.read_bytes() == b"converted"
    assert (files.adapter, files.context_length) == (None, 512)


async def test_a_version_that_is_no_adapter_is_refused(tmp_path: Path) -> None:
    weights, base = with_converted_base(tmp_path)
    file = BlobFile(name="model.safetensors", blob="t/a/b", sha256="ab" * 32, bytes=1)
    with pytest.raises(Refusal) as refused:
        await weights.fetch(model(base, (file,)))
    assert refused.value.code == UNSUPPORTED


async def test_a_broken_adapter_is_not_converted(tmp_path: Path) -> None:
    base = base_folder(tmp_path / "base")
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / f"{hash_base(base)}.gguf").write_bytes(b"converted")
    blobs = MemoryBlobs()
    files = []
    for name in sorted(ADAPTER_FILES):
        await blobs.put(f"t/a/{name}", b"changed")
        files.append(
            BlobFile(name=name, blob=f"t/a/{name}", sha256=sha256(b"meant").hexdigest(), bytes=7)
        )
    with pytest.raises(BlobCorrupt):
        await ConvertedWeights(blobs, tmp_path / "engine", 2).fetch(model(base, tuple(files)))
    assert [path.name for path in (tmp_path / "engine").iterdir()] == [f"{hash_base(base)}.gguf"]


async def test_the_files_that_were_used_last_are_kept(tmp_path: Path) -> None:
    weights, base = with_converted_base(tmp_path)
    for name in ("old", "older"):
        (tmp_path / "engine" / f"{name}.lora.gguf").write_bytes(b"")
    await weights.fetch(model(base))
    kept = {path.name for path in (tmp_path / "engine").iterdir()}
    assert f"{hash_base(base)}.gguf" in kept
    assert len(kept) == 2


def test_what_a_killed_conversion_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / f"unfinished-{2**22 + 1}-a" / "base").mkdir(parents=True)
    at_work = tmp_path / f"unfinished-{os.getpid()}-b"
    at_work.mkdir()
    (tmp_path / "done.gguf").write_bytes(b"")
    ConvertedWeights(MemoryBlobs(), tmp_path, 2)
    assert {path.name for path in tmp_path.iterdir()} == {"done.gguf", at_work.name}
