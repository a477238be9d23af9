"""Checks what may be published: an adapter or a whole model, no pickles, no local paths.

The bytes are never rewritten here: the gate judged exactly these, by hash.
"""

import json
import struct
from collections.abc import Mapping
from math import prod
from typing import Any, Final

from schemas.training import ADAPTER_FILES, WHOLE_FILES

WEIGHTS, CONFIG = ADAPTER_FILES
WHOLE_WEIGHTS, WHOLE_CONFIG = WHOLE_FILES
# Beside a whole model, and an adapter with a chat template of its own: how it generates, its
# tokenizer, its template. No code, and nothing pickled.
BESIDE: Final = frozenset(
    (
        *("generation_config.json", "tokenizer.json", "tokenizer_config.json", "vocab.json"),
        *("special_tokens_map.json", "added_tokens.json", "tokenizer.model", "spiece.model"),
        *("vocab.txt", "merges.txt", "chat_template.jinja", "chat_template.json"),
    )
)
LINEAGE: Final = "lineage.json"
CONFIG_BYTES_MAX: Final = 1 << 20
WEIGHTS_BYTES_MAX: Final = 64 << 30
HEADER_BYTES_MAX: Final = 16 << 20
PREFIX_BYTES: Final = 8  # length of the header, little-endian
BYTES_OF_DTYPE: Final = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


class Unpublishable(Exception):
    """These bytes will never be published; the message names the file and what is wrong."""


def check_names(names: tuple[str, ...]) -> None:
    """Raises Unpublishable unless the files are weights and config, and those of a tokenizer.

    Loaders prefer pickled weights where there are any, and a pickle can run code.
    """
    if WHOLE_WEIGHTS in names:
        others = sorted({*names} - BESIDE - {*WHOLE_FILES})
        if others or WHOLE_CONFIG not in names or len(names) != len({*names}):
            raise Unpublishable(
                f"a whole model is {WHOLE_CONFIG}, {WHOLE_WEIGHTS} and the files of its tokenizer, "
                f"not {', '.join(others) or 'fewer of them'}"
            )
        return
    if sorted(set(names) - BESIDE) != sorted((WEIGHTS, CONFIG)) or len(names) != len(set(names)):
        listed = ", ".join(sorted(names)) or "no file"
        raise Unpublishable(
            f"an adapter is {CONFIG}, {WEIGHTS} and the files of a tokenizer at most, not {listed}"
        )


def read_config(data: bytes, base_id: str, base_sha256: str) -> dict[str, Any]:
    """The configuration of an adapter.

    Raises Unpublishable unless it is in canonical form and names its base. Adapters of before
    November 22nd, 2026 name it with its hash, which no library understands.
    """
    try:
        config = json.loads(data)
    except ValueError as error:
        raise Unpublishable(f"{CONFIG} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise Unpublishable(f"{CONFIG} must be a JSON object")
    canonical = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if canonical.encode() != data:
        raise Unpublishable(f"{CONFIG} is not in canonical form (sorted keys, two spaces)")
    if config.get("base_model_name_or_path") not in {base_id, f"{base_id}@{base_sha256}"}:
        raise Unpublishable(f"{CONFIG}: base_model_name_or_path must be {base_id!r}")
    for name, value in config.items():
        _check_path(CONFIG, name, value)
        texts = value if isinstance(value, list) else [value]
        names = [text for text in texts if isinstance(text, str)]
        if isinstance(value, list) and len(names) == len(value) and names != sorted(names):
            raise Unpublishable(f"{CONFIG}: {name} is not sorted")
    if not isinstance(config.get("r"), int) or config["r"] < 1:
        raise Unpublishable(f"{CONFIG}: r must be a whole number above 0")
    return config


def read_whole_config(data: bytes) -> dict[str, Any]:
    """The configuration of a whole model. Raises Unpublishable where it is none, or names code."""
    try:
        config = json.loads(data)
    except ValueError as error:
        raise Unpublishable(f"{WHOLE_CONFIG} is not JSON: {error}") from error
    if not isinstance(config, dict) or not config.get("model_type"):
        raise Unpublishable(f"{WHOLE_CONFIG} must be a JSON object with a model_type")
    if config.get("auto_map"):
        raise Unpublishable(f"{WHOLE_CONFIG}: auto_map names code to be run")
    for name, value in config.items():
        _check_path(WHOLE_CONFIG, name, value)
    return config


def _check_path(file: str, name: str, value: Any) -> None:
    texts = value if isinstance(value, list) else [value]
    if any(isinstance(text, str) and text.startswith(("/", "~", "file:")) for text in texts):
        raise Unpublishable(f"{file}: {name} holds a path of the training machine")


def header_length(prefix: bytes, size: int, bytes_max: int = HEADER_BYTES_MAX) -> int:
    """Return the bytes of the safetensors header that follows its prefix. Raises Unpublishable.

    size: bytes of the whole file. bytes_max: of the header.
    """
    if len(prefix) < PREFIX_BYTES:
        raise Unpublishable(f"{WEIGHTS} is too short to be a safetensors file")
    (length,) = struct.unpack("<Q", prefix[:PREFIX_BYTES])
    if not 2 <= length <= min(bytes_max, size - PREFIX_BYTES):
        raise Unpublishable(f"{WEIGHTS}: a header of {length} bytes cannot be right")
    return int(length)


def check_header(header: bytes, size: int, config: Mapping[str, Any] | None) -> int:
    """Number of tensors.

    header: the JSON after the prefix
    size: bytes of the whole file
    config: configuration of the adapter, from `read_config`; None: a whole model

    Raises Unpublishable unless they fill the file without gap or overlap and fit the configuration.
    """
    tensors = read_tensors(header)
    spans = sorted(_span(name, tensor, config) for name, tensor in tensors.items())
    if not spans:
        raise Unpublishable(f"{WEIGHTS} holds no tensors")
    end_before = 0
    for begin, end, name in spans:
        if begin != end_before:
            raise Unpublishable(f"{WEIGHTS}: {name} begins at {begin}, not at {end_before}")
        end_before = end
    if end_before != size - PREFIX_BYTES - len(header):
        raise Unpublishable(f"{WEIGHTS}: tensors end at {end_before}, the file does not")
    return len(spans)


def read_tensors(header: bytes) -> dict[str, Any]:
    """Decode a header: its tensors, by name. Raises Unpublishable if it is not JSON, or repeats a
    name: readers differ in which of the two they take.
    """
    try:
        tensors = json.loads(header, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise Unpublishable(f"{WEIGHTS}: its header is not JSON: {error}") from error
    if not isinstance(tensors, dict):
        raise Unpublishable(f"{WEIGHTS}: its header must be a JSON object")
    tensors.pop("__metadata__", None)
    return tensors


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises ValueError."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name is there twice")
    return values


def _span(name: str, tensor: Any, config: Mapping[str, Any] | None) -> tuple[int, int, str]:
    try:
        dtype, shape, (begin, end) = tensor["dtype"], tensor["shape"], tensor["data_offsets"]
        width = BYTES_OF_DTYPE[dtype]
        whole = all(isinstance(n, int) and n > 0 for n in shape)
        whole = whole and isinstance(begin, int) and isinstance(end, int)
    except (TypeError, KeyError, ValueError) as error:
        raise Unpublishable(f"{WEIGHTS}: {name} is described wrongly ({error!r})") from error
    if not whole or not 0 <= begin <= end or end - begin != width * prod(shape):
        raise Unpublishable(f"{WEIGHTS}: {name} has shape {shape} but spans {begin} to {end}")
    if config is not None:
        _check_weight(name, shape, config)
    return begin, end, name


def _check_weight(name: str, shape: list[int], config: Mapping[str, Any]) -> None:
    """Raises Unpublishable for a weight that is not of this adapter."""
    if any(f".{layer}." in name for layer in config.get("modules_to_save") or ()):
        return  # trained as a whole: of whatever shape the layer has
    if ".lora_magnitude_vector" in name and config.get("use_dora"):
        return
    side = {"lora_A": 0, "lora_B": 1}
    kind = next((kind for kind in side if f".{kind}." in f".{name}."), None)
    if kind is None:
        raise Unpublishable(f"{WEIGHTS}: {name} is no LoRA weight")
    rank = config["r"]
    ranks = {rank, *(config.get("rank_pattern") or {}).values()}
    width = shape[side[kind]] if len(shape) == len(side) else 0
    # those of all experts of a layer are one matrix
    fits = width in ranks or (".experts." in name and any(width % r == 0 for r in ranks))
    if not width or not fits:
        raise Unpublishable(f"{WEIGHTS}: {name} has shape {shape}, which is not of rank {rank}")
