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
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.work.engine import EngineModel

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
