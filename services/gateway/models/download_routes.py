"""`/v1/downloads`: URLs that give one file of a model or checkpoint for a time, without an API key.

Object storage has ciphertext, so the gateway decrypts the file on its way.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final
from urllib.parse import quote

import msgspec
from fastapi import Request
from fastapi.responses import StreamingResponse
from msgspec import Struct

from schemas import errors
from schemas.training import BlobFile
from schemas.units import HOUR_MS, Ms
from services.gateway.web.deps import Deps, WithDeps
from services.gateway.web.domain.errors import ApiError
from services.gateway.web.routing import new_router
from services.gateway.web.storage import chain, within
from tunery.runtime.blobs.abstract import BlobMissing

URL_MS: Final[Ms] = HOUR_MS  # how long a URL works
ROOT: Final = "/v1/downloads"
router = new_router("models", needs_key=False)


class Ticket(Struct, frozen=True, array_like=True):
    """Content of a download URL: access to a file of this tenant until a time."""

    tenant: str
    file: BlobFile
    until: Ms


def download_url(deps: Deps, request: Request, tenant: str, file: BlobFile) -> str:
    """A URL of the gateway as the caller reached it. Raises KeyDestroyed."""
    ticket = Ticket(tenant, file, deps.clock.now_ms() + URL_MS)
    text = urlsafe_b64encode(msgspec.json.encode(ticket)).decode()
    return f"{request.base_url}{ROOT[1:]}/{text}.{deps.seal.hmac(tenant, _signed(text))}"


@router.get(ROOT + "/{ticket}")
async def download_file(ticket: str, deps: WithDeps) -> StreamingResponse:
    """One file of a model or checkpoint, as its URL says. No API key is needed."""
    file = _read(deps, ticket).file
    chunks = deps.blobs.stream(file.blob, sha256=file.sha256)
    try:
        first = await within(anext(chunks, b""))
    except BlobMissing as error:
        message = f"{file.name} is not kept any more."
        raise ApiError(404, errors.NOT_FOUND, message, "ticket") from error
    return StreamingResponse(
        chain(first, chunks),
        media_type="application/octet-stream",
        headers={
            "content-length": str(file.bytes),
            "content-disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}",
        },
    )


def _read(deps: Deps, written: str) -> Ticket:
    """Raises ApiError 403 for a ticket that is not ours, or whose time is over; KeyDestroyed."""
    text, _, mac = written.rpartition(".")
    try:
        ticket = msgspec.json.decode(urlsafe_b64decode(text), type=Ticket)
        is_ours = deps.seal.verify(ticket.tenant, _signed(text), mac)
    except (msgspec.MsgspecError, ValueError):
        is_ours = False
    if not is_ours:
        raise ApiError(403, errors.FORBIDDEN, "This URL was not made here.", "ticket")
    if deps.clock.now_ms() >= ticket.until:
        message = "This URL has ended. Ask for the files again."
        raise ApiError(403, errors.FORBIDDEN, message, "ticket")
    return ticket


def _signed(text: str) -> str:
    return f"download:{text}"
