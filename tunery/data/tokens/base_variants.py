"""Folders of base models with another chat template, or other tokens that end a turn.

The template that an operator adds belongs to the base model, whose hash covers it: it makes another
base model of the same weights. That of a job is in a folder with a tokenizer alone, which what
trains reads beside the base model; its files are part of the version, for everyone who asks it.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tunery.data.tokens.tokenizer import BaseUnusable, parse_tokenizer
from tunery.platform.blobs.base_files import CONFIG, TOKENIZER_NAMES, base_files
from tunery.work.own_chat import EOT_TOKENS_MAX, OwnChat

TEMPLATE: Final = "chat_template.jinja"
GENERATION: Final = "generation_config.json"
TOKENIZER: Final = "tokenizer_config.json"
SPECIAL: Final = "special_tokens_map.json"
OTHER_TEMPLATE: Final = "chat_template.json"  # of processors; it would be read in place of ours
TEMPLATE_BYTES_MAX: Final = 65_536
EOS: Final = "eos_token"
DIGITS: Final = 12


def write_variant(folder: Path, template: str | None, eot_tokens: Sequence[str]) -> Path:
    """Write a folder next to a base model's with another template or end tokens; its path.

    The weights are hard links where the file system has them, else copies. The folder's name has a
    hash of what differs, so the same call again finds it.

    template: None: the base model's own stays
    eot_tokens: tokens that end a turn, besides those that end an answer already

    Raises `BaseUnusable` for what does not fit the base model, and `OSError`.
    """
    changed = _changed_files(folder, template, eot_tokens)
    digest = hashlib.sha256()
    for name, content in sorted(changed.items()):
        digest.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
    written = folder.with_name(f"{folder.name}-{digest.hexdigest()[:DIGITS]}")
    if written.is_dir():
        return written
    with TemporaryDirectory(dir=folder.parent, prefix=f".{written.name}.") as name:
        part = Path(name) / "base"
        part.mkdir()
        for path in base_files(folder):
            if path.name not in (*changed, OTHER_TEMPLATE):
                _link(path.resolve(), part / path.name)
        for file, content in changed.items():
            (part / file).write_bytes(content)
        part.rename(written)
    return written


def write_tokenizer(folder: Path, chat: OwnChat, dest: Path) -> Path:
    """Write a base model's tokenizer with another template or end tokens to a new folder; its path.

    The folder is complete for `Tokenizer.load` and transformers' `AutoTokenizer`.

    Raises as `write_variant`.
    """
    changed = _changed_files(folder, chat.template, chat.eot_tokens)
    generation = _object(folder / GENERATION)
    ends = _several(_object(folder / CONFIG).get("eos_token_id"))
    if GENERATION not in changed and ends and not _several(generation.get("eos_token_id")):
        changed[GENERATION] = _json({**generation, "eos_token_id": ends})
    dest.mkdir()
    for name in (CONFIG, *TOKENIZER_NAMES):
        if name not in (*changed, OTHER_TEMPLATE) and (folder / name).is_file():
            shutil.copyfile(folder / name, dest / name)
    for name, content in changed.items():
        (dest / name).write_bytes(content)
    return dest


def _changed_files(
    folder: Path, template: str | None, eot_tokens: Sequence[str]
) -> dict[str, bytes]:
    """The files of a base model that have another content. Raises BaseUnusable."""
    changed: dict[str, bytes] = {}
    if template is not None:
        changed[TEMPLATE] = template.encode()
        if len(changed[TEMPLATE]) > TEMPLATE_BYTES_MAX:
            size = len(changed[TEMPLATE])
            raise BaseUnusable(f"the chat template has {size} bytes, at most {TEMPLATE_BYTES_MAX}")
    if eot_tokens:
        changed |= _end_files(folder, eot_tokens)
    return changed


def _end_files(folder: Path, eot_tokens: Sequence[str]) -> dict[str, bytes]:
    """The files that name the tokens which end an answer, for every library that reads them.

    Those of before still end an answer; the first of `eot_tokens` is the one that is written after
    rows without a template.
    """
    if len(eot_tokens) > EOT_TOKENS_MAX:
        raise BaseUnusable(f"there are {len(eot_tokens)} end tokens, at most {EOT_TOKENS_MAX}")
    try:
        parsed, _ = parse_tokenizer((folder / "tokenizer.json").read_bytes())
    except Exception as error:  # the library raises bare Exception
        raise BaseUnusable(f"tokenizer.json cannot be read: {error}") from error
    added = parsed.get_added_tokens_decoder()
    special = {token.content: number for number, token in added.items() if token.special}
    for token in eot_tokens:
        if token not in special:
            known = ", ".join(sorted(special)[:EOT_TOKENS_MAX]) or "none"
            raise BaseUnusable(
                f"{token!r} is no special token of this base model, so it cannot end a turn; it "
                f"has {known}"
            )
    tokens = _object(folder / TOKENIZER)
    before = _several(_object(folder / CONFIG).get("eos_token_id"))
    generation = _object(folder / GENERATION)
    before = _several(generation.get("eos_token_id")) or before
    eos = tokens.get(EOS, _object(folder / SPECIAL).get(EOS))
    eos = eos.get("content") if isinstance(eos, Mapping) else eos
    if eos in special:
        before = [*before, special[eos]]
    ids = dict.fromkeys((*(special[token] for token in eot_tokens), *before))
    changed = {
        GENERATION: {**generation, "eos_token_id": list(ids)},
        TOKENIZER: {**tokens, EOS: eot_tokens[0]},
    }
    if (folder / SPECIAL).is_file():
        changed[SPECIAL] = {**_object(folder / SPECIAL), EOS: eot_tokens[0]}
    return {name: _json(value) for name, value in changed.items()}


def _json(value: Any) -> bytes:
    return f"{json.dumps(value, indent=2)}\n".encode()


def _object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise BaseUnusable(f"{path.name} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise BaseUnusable(f"{path.name} is not a JSON object")
    return value


def _several(value: Any) -> list[int]:
    """Token ids that a configuration names: one, several or none."""
    return [
        number for number in (value if isinstance(value, list) else [value]) if number is not None
    ]


def _link(source: Path, dest: Path) -> None:
    try:
        os.link(source, dest)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, dest)
