"""The beginnings of uploaded files, for tasks that do not read all rows."""

from pathlib import Path

from services.gateway.views.tables.files import FileRow
from services.gateway.web.deps import Deps
from services.gateway.web.storage import within


async def copy_beginning(deps: Deps, file: FileRow, path: Path, bytes_max: int) -> None:
    """Copy the file, or the complete lines of its beginning, to a path."""
    if file.bytes <= bytes_max:
        await within(deps.blobs.get_file(file.blob, path), file.bytes)
        return
    kept = bytearray()
    chunks = deps.blobs.stream(file.blob)
    while len(kept) < bytes_max and (chunk := await within(anext(chunks, b""))):
        kept += chunk
    path.write_bytes(kept[: kept.rfind(b"\n") + 1])
