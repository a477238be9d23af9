"""Parses a multipart form and streams its file to object storage, in any order of the fields."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from services.gateway.web.domain.errors import FILE_TOO_LARGE, INCOMPLETE, ApiError, invalid

FIELD_BYTES_MAX: Final = 4_096
PARTS_MAX: Final = 32
NAME_CHARACTERS_MAX: Final = 256
HEADER_BYTES_MAX: Final = 8_192


@dataclass
class UploadForm:
    """The form without the file's bytes. `filename` null: it had no file."""

    fields: dict[str, str] = field(default_factory=dict)
    filename: str | None = None
    bytes: int = 0


class _Parts:
    """Callbacks of the parser. They cannot await, so they queue the file bytes of a chunk."""

    def __init__(self, form: UploadForm, file_field: str, field_bytes_max: int) -> None:
        self.form, self._file_field = form, file_field
        self._field_bytes_max = field_bytes_max
        self.ended = False
        self.pending: list[bytes] = []
        self._count = 0
        self._name = ""
        self._is_file = False
        self._value = bytearray()
        self._header = bytearray()
        self._header_value = bytearray()
        self._disposition = b""

    def on_part_begin(self) -> None:
        self._count += 1
        if self._count > PARTS_MAX:
            raise invalid(f"The form has more than {PARTS_MAX} parts.")
        self._value.clear()
        self._disposition = b""

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]
        self._check_header()

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]
        self._check_header()

    def _check_header(self) -> None:
        if len(self._header) + len(self._header_value) > HEADER_BYTES_MAX:
            raise invalid(f"A part has headers above {HEADER_BYTES_MAX} bytes.")

    def on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = bytes(self._header_value)
        self._header.clear()
        self._header_value.clear()

    def on_headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        self._is_file = self._name == self._file_field
        if not self._is_file:
            return
        if self.form.filename is not None:
            raise invalid("Send one file at a time.", self._file_field)
        name = options.get(b"filename", b"file").decode("utf-8", "replace")
        self.form.filename = name.replace("\0", "")[:NAME_CHARACTERS_MAX] or "file"

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self.pending.append(data[start:end])
            return
        self._value += data[start:end]
        if len(self._value) > self._field_bytes_max:
            raise invalid(f"is longer than {self._field_bytes_max} bytes", self._name)

    def on_part_end(self) -> None:
        if not self._is_file:
            self.form.fields[self._name] = self._value.decode("utf-8", "replace")

    def on_end(self) -> None:
        self.ended = True


def multipart_body(properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """The form's description for the OpenAPI document; FastAPI cannot derive it."""
    schema = {"type": "object", "properties": dict(properties), "required": list(required)}
    content = {"multipart/form-data": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


def boundary_of(content_type: str | None) -> bytes:
    """Raises ApiError 400."""
    kind, options = parse_options_header(content_type or "")
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise invalid("Send the bytes as multipart/form-data; see /openapi.json for its fields.")
    return boundary


async def receive_form(
    boundary: bytes,
    chunks: AsyncIterator[bytes],
    write: Callable[[bytes], Awaitable[None]],
    bytes_max: int,
    file_field: str = "file",
    check: Callable[[UploadForm], None] | None = None,
    field_bytes_max: int = FIELD_BYTES_MAX,
) -> UploadForm:
    """Parse a form and pass the file's bytes to `write`. Raises ApiError 400, 413.

    check: checks the fields that came before the file, ahead of its first byte. field_bytes_max: of
    each of the others.
    """
    form = UploadForm()
    parts = _Parts(form, file_field, field_bytes_max)
    names = ("part_begin", "part_data", "part_end", "headers_finished", "end")
    headers = ("header_field", "header_value", "header_end")
    callbacks = {f"on_{name}": getattr(parts, f"on_{name}") for name in (*names, *headers)}
    try:
        parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]  # a dict of callables
        async for chunk in chunks:
            parser.write(chunk)
            if parts.pending and not form.bytes and check is not None:
                check(form)
            for piece in parts.pending:
                form.bytes += len(piece)
                if form.bytes > bytes_max:
                    raise _too_large(bytes_max, file_field)
                await write(piece)
            parts.pending.clear()
    except FormParserError as error:
        raise invalid(f"The form cannot be read: {error}") from error
    if not parts.ended:
        raise ApiError(400, INCOMPLETE, "The upload ended before its last byte; send it again.")
    return form


def _too_large(bytes_max: int, file_field: str) -> ApiError:
    return ApiError(
        413,
        FILE_TOO_LARGE,
        f"{file_field} is larger than {bytes_max} bytes, the limit here. Send a large file in "
        "parts: POST /v1/uploads.",
        file_field,
        {"connection": "close"},
    )
