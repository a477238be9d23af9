"""The files of a model as PEFT reads them: verified, and nothing but safetensors.

Each adapter has its own folder, named by the hash of its files and of its base model. A folder
is there whole or not at all, and never changes.
"""

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from services.engine.adapters.weights import (
    CONFIG,
    OWN_TOKENIZER,
    check_base,
    check_options,
    delete_unfinished,
    digest_of,
    fetch_adapter,
    link_base,
    unfinished_folder,
    with_plain_scale,
)
from services.engine.ports import AdapterFiles, WeightFiles
from tunery.work.engine import EngineModel
from tunery.work.engine_rows import ENGINES, Driver

#: options with which PEFT would change the base model while it loads an adapter
CHANGES_BASE: Final = ("layer_replication", "loftq_config", "corda_config")
ADAPTER: Final = ".adapter"  # how names of folders end
BASE: Final = ".base"


class PlainWeights:
    """Implements `Weights`.

    folder: parent of the folders, of which `kept_max` are kept
    refused: options of PEFT that the engine cannot serve
    rewrite: says the same configuration in words that the engine knows
    """

    def __init__(
        self,
        blobs: AdapterFiles,
        folder: Path,
        kept_max: int,
        refused: Sequence[str] = (),
        rewrite: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self._blobs, self._folder, self._kept_max = blobs, folder, kept_max
        self._refused, self._rewrite = (*CHANGES_BASE, *refused), rewrite
        self._fetching = asyncio.Lock()
        delete_unfinished(folder)

    async def fetch(self, model: EngineModel) -> WeightFiles:
        """Raises Refusal; BlobError; OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        source = Path(model.base_path)
        await asyncio.to_thread(check_base, source, model)
        async with self._fetching:
            base = await asyncio.to_thread(self._linked, source, model.base_sha256)
            adapter = await self._adapter(model) if model.adapter else None
            used = {base, adapter} - {None}
            await asyncio.to_thread(self._keep_newest, used)
        own = None if adapter is None else adapter / OWN_TOKENIZER
        tokenizer = own if own is not None and own.is_dir() else None
        return WeightFiles(source, base, adapter, model.context_length, tokenizer)

    def _linked(self, source: Path, sha256: str) -> Path:
        """A folder with links to the base model's files alone; they are what was verified."""
        linked = self._folder / f"{sha256}{BASE}"
        with unfinished_folder(self._folder) as name:
            fresh = link_base(source, Path(name) / "base")
            if linked.exists():  # the base model may have moved
                linked.rename(Path(name) / "before")
            fresh.rename(linked)
        return linked

    async def _adapter(self, model: EngineModel) -> Path:
        kept = self._folder / f"{digest_of(model)}{ADAPTER}"
        if kept.exists():
            os.utime(kept)
            return kept
        with unfinished_folder(self._folder) as name:
            fresh = Path(name) / "adapter"
            fresh.mkdir()
            await fetch_adapter(self._blobs, model, fresh)
            config = json.loads((fresh / CONFIG).read_bytes())
            check_options(config, self._refused)
            if self._rewrite is not None:
                (fresh / CONFIG).write_text(json.dumps(self._rewrite(config)), encoding="utf-8")
            fresh.rename(kept)
        return kept

    def _keep_newest(self, used: set[Path | None]) -> None:
        """Delete the folders that were not used for the longest time."""
        others = {*self._folder.glob(f"*{ADAPTER}")} - used
        oldest = sorted(others, key=lambda path: path.stat().st_mtime_ns)
        for path in oldest[: max(0, len(others) + 1 - self._kept_max)]:
            shutil.rmtree(path, ignore_errors=True)


def served_weights(
    driver: Driver, blobs: AdapterFiles, folder: Path, kept_max: int
) -> PlainWeights:
    """Return the files that a server reads: with options that it computes as PEFT does."""
    rewrite = with_plain_scale if driver == "sglang" else None  # it knows no rsLoRA
    return PlainWeights(blobs, folder, kept_max, ENGINES[driver].adapters_refused, rewrite)
