"""The registry's to-do list: versions to publish, and files of deleted ones to erase."""

from typing import Any, Final

from schemas.envelope import Header, Message
from schemas.lifetime import VersionErased
from schemas.model import (
    VersionDeleted,
    VersionFailed,
    VersionPublished,
    VersionSubmitted,
)
from tunery.runtime.verbs import Change, Done, Todo

PUBLISH: Final = "publish"
ERASE: Final = "erase"


class EraseModelFile(Message):
    """Erase one file of a deleted version."""

    blob: str


def project(header: Header, event: Any) -> tuple[Change, ...]:
    """To-do rows that an event opens or closes."""
    match event:
        case VersionSubmitted():
            row = todo_id(header.key, event.terms.lineage.job_id)
            return (Todo(PUBLISH, row, header.key, header.tenant, event),)
        case VersionPublished():
            # the same bytes may be wanted again: then they must not be erased
            kept = (Done(ERASE, file.blob) for file in event.files)
            return (Done(PUBLISH, todo_id(header.key, event.terms.lineage.job_id)), *kept)
        case VersionFailed():
            return (Done(PUBLISH, todo_id(header.key, event.job_id)),)
        case VersionDeleted(erase_at=None) | VersionErased():
            return tuple(
                Todo(ERASE, file.blob, header.key, header.tenant, EraseModelFile(blob=file.blob))
                for file in event.files
            )
        case _:
            return ()


def todo_id(tenant: str, job_id: str) -> str:
    """Id of a row. By job, as the refusal of a second job must not end the row of the first."""
    return f"{tenant}/{job_id}"
