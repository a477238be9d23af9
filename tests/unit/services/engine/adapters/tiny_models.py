"""The tiny base model with an adapter of random weights, converted once for a test run."""

import atexit
import shutil
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from schemas.training import BlobFile
from services.engine.adapters.weights import ConvertedWeights
from services.engine.ports import WeightFiles
from tests.bases import tiny_base
from tunery.data.tokens.base_variants import write_tokenizer
from tunery.platform.blobs.base_files import TOKENIZER_NAMES, hash_base
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.work.engine import EngineModel
from tunery.work.own_chat import OwnChat

ASKED: list[dict[str, Any]] = [{"role": "user", "content": "Who are you?"}]
TOKENS = 16


@cache
def folder() -> Path:
    """A folder that all tests of a process share; it goes with the process."""
    created = Path(tempfile.mkdtemp(prefix="tiny-models-"))
    atexit.register(shutil.rmtree, created, ignore_errors=True)
    return created


def answers(tokens: int = TOKENS, base_folder: Path | None = None) -> tuple[str, str]:
    """What transformers answers with the base model, and with the adapter, which is written.

    base_folder: None: of the tiny base model
    """
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base_folder = base_folder or tiny_base().dir
    base = AutoModelForCausalLM.from_pretrained(base_folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(base_folder)
    torch.manual_seed(1)
    options = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", use_rslora=True)
    model: Any = get_peft_model(base, options)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    model.save_pretrained(folder() / "adapter")
    (folder() / "adapter" / "README.md").rename(folder() / "adapter" / "lineage.json")
    asked = tokenizer.apply_chat_template(
        ASKED, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )

    def text() -> str:
        written = model.generate(**asked, max_new_tokens=tokens, do_sample=False)
        start = asked["input_ids"].shape[1]
        return str(tokenizer.decode(written[0, start:], skip_special_tokens=True))

    tuned = text()
    with model.disable_adapter():
        return text(), tuned


async def uploaded(blobs: MemoryBlobs) -> tuple[BlobFile, ...]:
    """The files of the adapter as a version has them."""
    files = []
    for path in sorted((folder() / "adapter").iterdir()):
        data = path.read_bytes()
        key = f"t/a/artifacts/{path.name}"
        await blobs.put(key, data)
        files.append(
            BlobFile(name=path.name, blob=key, sha256=sha256(data).hexdigest(), bytes=len(data))
        )
    return tuple(files)


def engine_model(files: tuple[BlobFile, ...] = ()) -> EngineModel:
    base = tiny_base()
    return EngineModel("tiny", str(base.dir), base.sha256, 512, files)


async def converted(blobs: MemoryBlobs, files: tuple[BlobFile, ...] = ()) -> WeightFiles:
    return await ConvertedWeights(blobs, folder() / "engine", 8).fetch(engine_model(files))


def turning(dest: Path) -> Path:
    """A base model whose second token is `<|im_start|>`, which ends no answer of it."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    shutil.copytree(tiny_base().dir, dest)
    model = AutoModelForCausalLM.from_pretrained(dest, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(dest)
    asked = tokenizer.apply_chat_template(
        ASKED, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    written = model.generate(**asked, max_new_tokens=2, do_sample=False)
    head = model.lm_head.weight.detach().clone()
    head[tokenizer.convert_tokens_to_ids("<|im_start|>")] = 1.05 * head[written[0, -1]]
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(head)
    model.save_pretrained(dest)
    return dest


async def with_own_tokenizer(blobs: MemoryBlobs, base: Path) -> EngineModel:
    """A version on a base model whose answers end at `<|im_start|>`, too."""
    answers()
    adapter = await uploaded(blobs)
    own = write_tokenizer(base, OwnChat(None, ("<|im_start|>",)), base.with_name("own"))
    files = []
    for path in sorted(own.iterdir()):
        if path.name in TOKENIZER_NAMES:
            data = path.read_bytes()
            await blobs.put(f"t/a/own/{path.name}", data)
            digest = sha256(data).hexdigest()
            key = f"t/a/own/{path.name}"
            files.append(BlobFile(name=path.name, blob=key, sha256=digest, bytes=len(data)))
    return EngineModel("tiny", str(base), hash_base(base), 512, (*adapter, *files))
