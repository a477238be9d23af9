"""Projects journals to the to-do list of ingest, and to its table of base models."""

from typing import Any, Final

from schemas.dataset import (
    DatasetPrepared,
    FileDeleted,
    FileRegistered,
    FileUnreadable,
    FileValidated,
    PreparationDue,
    PreparationFailed,
    UnnamedDiscarded,
    UploadEnded,
    WorkDiscarded,
    part_blob,
    prepared_folder,
)
from schemas.envelope import Header, Message
from schemas.erasure import FilesErased
from schemas.model import BaseAdded
from schemas.session import SessionErased, session_folder
from schemas.units import Ms
from tunery.runtime.verbs import Change, Done, Todo, Upsert

VALIDATE: Final = "validate"
PREPARE: Final = "prepare"
ERASE: Final = "erase"
ERASE_TENANT: Final = "erase_tenant"
BASES: Final = "bases"
DDL: Final = """
CREATE TABLE IF NOT EXISTS bases (
    base_id text PRIMARY KEY,
    sha256 text NOT NULL,
    path text NOT NULL
);
"""


class EraseFileBlob(Message):
    """A stored object that the tenant no longer needs, or a folder (it ends in "/") of them."""

    blob: str
    before: Ms | None = None  # only what was stored before this time goes, None: whenever it was


class EraseTenantBlobs(Message):
    """Everything stored for a tenant, but exports of its bills."""


def project(header: Header, event: Any) -> tuple[Change, ...]:
    """The changes of to-do list and base models that follow from one event."""
    match event:
        case FileRegistered() if event.terms.purpose == "fine-tune":
            row = file_row(header.key, event.file_id)
            return (Todo(VALIDATE, row, header.key, header.tenant, event),)
        case FileValidated() | FileUnreadable():
            return (Done(VALIDATE, file_row(header.key, event.file_id)),)
        case FileDeleted():
            return _deleted(header, event)
        case UploadEnded():
            parts = (part_blob(header.key, event.upload_id, part) for part in event.parts)
            return tuple(_erase(header, blob) for blob in parts)
        case PreparationDue():
            return (Todo(PREPARE, event.prepare_id, header.key, header.tenant, event),)
        case DatasetPrepared():
            return (Done(PREPARE, event.prepare_id),)
        case PreparationFailed():
            # tries that ended before their report may have stored something
            folder = prepared_folder(header.key, event.prepare_id)
            return (Done(PREPARE, event.prepare_id), _erase(header, folder))
        case WorkDiscarded():
            return tuple(_erase(header, key) for key in event.erase)
        case UnnamedDiscarded():
            return tuple(_erase(header, blob, event.before) for blob in event.blobs)
        case SessionErased():
            return (_erase(header, session_folder(header.tenant, header.key)),)
        case FilesErased(more=False):
            body = EraseTenantBlobs()
            # one row for each event: a later one must not be taken for done with an earlier one
            row = f"{header.key}/{header.offset}"
            return (Todo(ERASE_TENANT, row, header.key, header.tenant, body),)
        case BaseAdded():
            base = event.base
            values = {"sha256": base.sha256, "path": base.path}
            return (Upsert(BASES, {"base_id": base.base_id}, values),)
        case _:
            return ()


def _deleted(header: Header, event: FileDeleted) -> tuple[Change, ...]:
    return (
        Done(VALIDATE, file_row(header.key, event.file_id)),
        *(Done(PREPARE, prepare_id) for prepare_id in event.cancelled),
        *(_erase(header, key) for key in event.erase),
    )


def _erase(header: Header, blob: str, before: Ms | None = None) -> Todo:
    body = EraseFileBlob(blob=blob, before=before)
    return Todo(ERASE, blob, header.key, header.tenant, body)


def file_row(tenant: str, file_id: str) -> str:
    return f"{tenant}/{file_id}"
