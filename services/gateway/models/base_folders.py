"""Describes a base model's folder: hash of its files, size, context. No tensors are loaded."""

import asyncio
import json
from math import prod
from pathlib import Path
from typing import Any, Final

from schemas.model import Base
from services.gateway.web.domain.errors import invalid
from tunery.platform.blobs.base_files import hash_base, text_config, weight_files
from tunery.platform.blobs.base_shapes import shape_of

HEADER_BYTES_MAX: Final = 100 * 1024 * 1024  # the safetensors format's own limit
FILES_MAX: Final = 10_000
ADAPTER: Final = "adapter_config.json"
HEADER_LENGTH_BYTES: Final = 8


class LocalBaseFolders:
    """Implements `BaseFolders`, in a thread: hashing takes about a second per gigabyte."""

    async def read(self, base_id: str, path: str, licence: str) -> Base:
        return await asyncio.to_thread(describe, base_id, Path(path), licence)


def describe(base_id: str, folder: Path, licence: str) -> Base:
    """Describe the base model in a folder. Raises ApiError 400, which names what is wrong."""
    if "\0" in str(folder) or not folder.is_absolute():
        raise invalid("path must be absolute", "path")
    try:
        config = text_config(json.loads((folder / "config.json").read_bytes()))
        weights = weight_files(folder)
        if (folder / ADAPTER).exists():
            text = f"{folder} has {ADAPTER}, which names weights outside it; merge the adapter"
            raise invalid(text, "path")
        if any(file.parent != folder for file in weights):
            raise invalid(f"{folder} has weights in other folders; move them into it", "path")
        if len(weights) > FILES_MAX:
            raise invalid(f"{folder} has more than {FILES_MAX} files of weights", "path")
        if not weights:
            raise invalid(f"{folder} has no *.safetensors; convert the weights first", "path")
        return Base(
            base_id=base_id,
            sha256=hash_base(folder),
            path=str(folder),
            parameters=sum(parameters_of(file) for file in weights),
            context_length=_number(config, "max_position_embeddings"),
            licence=licence,
            hidden_size=_number(config, "hidden_size"),
            **shape_of(config),
        )
    except FileNotFoundError as error:
        raise invalid(f"{error.filename} does not exist; name a model folder", "path") from error
    except OSError as error:
        raise invalid(f"{folder} cannot be read: {error.strerror}", "path") from error
    except UnicodeDecodeError as error:  # its text has the bytes of the file
        raise invalid(f"{folder} is no model folder: a file is not UTF-8", "path") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise invalid(f"{folder} is no model folder: {error!r}", "path") from error


def parameters_of(file: Path) -> int:
    """Number of values in a safetensors file, from its header. Raises ValueError."""
    return sum(prod(shape) for shape in _shapes(file).values())


def layers_of(folder: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of a base model's weights by name, from the headers of its files.

    Raises OSError where the files are not here, ValueError for a header that cannot be read.
    """
    layers: dict[str, tuple[int, ...]] = {}
    for file in weight_files(folder):
        layers |= _shapes(file)
    if not layers:
        raise FileNotFoundError(f"{folder} has no weights")
    return layers


def _shapes(file: Path) -> dict[str, tuple[int, ...]]:
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(HEADER_LENGTH_BYTES), "little")
        if length > HEADER_BYTES_MAX:
            raise ValueError(f"{file.name} has no safetensors header")
        header = json.loads(stream.read(length))
    return {
        name: tuple(int(dimension) for dimension in tensor["shape"])
        for name, tensor in header.items()
        if name != "__metadata__"
    }


def _number(config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"config.json has no {key}")
    return value
