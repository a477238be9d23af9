"""Tries the rows of a job with its own chat template, and counts their tokens.

A file is validated under the templates of base models. With another one it is read again before the
job is submitted, so that a template which does not fit it costs nothing.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from schemas.dataset import BaseTokens, ReasoningPolicy
from schemas.model import Base
from schemas.units import divide_up
from services.gateway.accounts.deps import limits_of
from services.gateway.files.beginnings import copy_beginning
from services.gateway.files.deps import FileDeps
from services.gateway.files.domain.bodies import PURPOSE
from services.gateway.files.domain.preview_tasks import Count
from services.gateway.jobs.domain.own_chats import EOT_TOKENS
from services.gateway.views.tables.files import FileRow
from services.gateway.web.deps import Principal
from services.gateway.web.domain.errors import invalid
from tunery.data.tokens.base_variants import write_tokenizer
from tunery.data.tokens.tokenizer import BaseUnusable
from tunery.work.own_chat import OwnChat

READ_BYTES_MAX: Final = 8 * 1024 * 1024  # of a larger file; its preparation tries all rows
KEPT_MAX: Final = 256  # counts: an estimate and its submission try a file once


async def tokenizer_of(base: Base, chat: OwnChat, folder: Path) -> str:
    """Write a base model's tokenizer with another chat format below a folder; its folder.

    Raises ApiError 400 for end tokens that the base model does not have, and where its files are
    not on this machine.
    """
    if not (Path(base.path) / "tokenizer.json").is_file():
        text = (
            f"tokenizer.json of {base.base_id} is not where the API runs, so that no chat template "
            "can be tried with it. Ask the operator to put the base model there."
        )
        raise invalid(text, "model")
    try:
        written = await asyncio.to_thread(
            write_tokenizer, Path(base.path), chat, folder / "tokenizer"
        )
    except BaseUnusable as error:
        raise invalid(f"{EOT_TOKENS}: {error}", EOT_TOKENS) from error
    return str(written)


def is_usable(file: FileRow) -> bool:
    """Return whether a file may have rows to train on; the others are refused by their place."""
    return file.status != "error" and file.purpose == PURPOSE


class OwnCounts:
    """Counts tokens of files, each once for a chat format."""

    def __init__(self, deps: FileDeps) -> None:
        self._deps = deps
        # None: no row of the file can be read
        self._kept: OrderedDict[tuple[str, ...], BaseTokens | None] = OrderedDict()

    async def count(
        self,
        caller: Principal,
        base: Base,
        chat: OwnChat,
        reasoning: ReasoningPolicy,
        files: Mapping[str, FileRow],
    ) -> dict[str, BaseTokens]:
        """Counts of files by their ids; those of a file that has no rows yet are left out.

        files: by their places in the request

        Raises ApiError 400 where a row cannot be learnt with the chat format, 429, 503.
        """
        common = (caller.tenant, base.base_id, base.sha256, chat.sha256, reasoning)
        keys = {file.id: (*common, file.sha256) for file in files.values()}
        counts = {file_id: self._kept[key] for file_id, key in keys.items() if key in self._kept}
        fresh = {at: file for at, file in files.items() if file.id not in counts}
        if fresh:
            counts |= await self._read(caller, base, chat, reasoning, fresh)
            self._kept |= {keys[file_id]: tokens for file_id, tokens in counts.items()}
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return {
            file.id: _at_least_validated(tokens, file)
            for file in files.values()
            if (tokens := counts.get(file.id)) is not None
        }

    async def _read(
        self,
        caller: Principal,
        base: Base,
        chat: OwnChat,
        reasoning: ReasoningPolicy,
        files: Mapping[str, FileRow],
    ) -> dict[str, BaseTokens | None]:
        deps, counts = self._deps, dict[str, BaseTokens | None]()
        limits = await limits_of(deps, caller.tenant)
        with deps.previews.admit(caller.tenant, limits.previews_max) as folder:
            tokenizer = await tokenizer_of(base, chat, folder)
            for param, file in files.items():
                path = folder / "rows"
                await copy_beginning(deps, file, path, READ_BYTES_MAX)
                task = Count(
                    path=str(path),
                    base_path=base.path,
                    tokenizer=tokenizer,
                    base_id=base.base_id,
                    base_sha256=base.sha256,
                    reasoning=reasoning,
                    source=f"{param}: {file.id}",
                )
                answer = await deps.previews.ask(task, caller.tenant, limits.niceness)
                read = msgspec.convert(answer["tokens"], BaseTokens | None)
                counts[file.id] = _of_whole(read, file.bytes, path.stat().st_size)
        return counts


def _of_whole(read: BaseTokens | None, of_bytes: int, read_bytes: int) -> BaseTokens | None:
    """Counts of a file of which a part was read; None: no row of it."""
    if read is None or of_bytes <= read_bytes or not read_bytes:
        return read
    return replace(
        read,
        tokens=divide_up(read.tokens * of_bytes, read_bytes),
        trainable_tokens=divide_up(read.trainable_tokens * of_bytes, read_bytes),
    )


def _at_least_validated(counted: BaseTokens, file: FileRow) -> BaseTokens:
    """The counts of a file of which a part was read, and at least those of its validation.

    Rows after that part may be longer, or denser: a hold must not follow from its beginning alone.
    """
    if file.bytes <= READ_BYTES_MAX or file.validation is None:
        return counted
    for whole in file.validation.tokens:
        if (whole.base_id, whole.base_sha256) == (counted.base_id, counted.base_sha256):
            return replace(
                counted,
                tokens=max(counted.tokens, whole.tokens),
                trainable_tokens=max(counted.trainable_tokens, whole.trainable_tokens),
                longest_row_tokens=max(counted.longest_row_tokens, whole.longest_row_tokens),
            )
    return counted
