"""Given events of `dataset`, then rows of files."""

from schemas.dataset import FileContent, FileDeleted, FileRegistered, FileUnreadable
from schemas.reasons import Failure, failing
from schemas.sealed import Sealed
from schemas.storage import FileTerms
from services.gateway.files.domain.responses import (
    UnreadableFileResponse,
    file_response,
    validation_response,
)
from services.gateway.views.tables.files import FILES
from tests.unit.services.gateway.view_rows import folded, only

FILE = FileRegistered(
    file_id="file-1",
    terms=FileTerms(purpose="fine-tune", name=Sealed(key_id="k", nonce=b"n", ciphertext=b"c")),
    content=FileContent(bytes=10, sha256="ab" * 32, blob="t/acme/files/file-1"),
)
SEALED = Sealed(key_id="k", nonce=b"n", ciphertext=b"c")
GONE = Failure(code="invalid_training_file", reason=failing("file_unchecked"), detail=SEALED)


def opened(sealed: Sealed | None, _field: str) -> str | None:
    return None if sealed is None else "opened"


def test_a_file_that_cannot_be_read_says_why() -> None:
    row = only(folded("dataset", FILE, FileUnreadable(file_id="file-1", failure=GONE)), FILES)
    shown = file_response(row, opened)
    assert shown.status == "error"
    why = "The file could not be checked. Upload it again to retry. opened"
    assert shown.status_details == why
    report = validation_response(row, None, opened)
    assert isinstance(report, UnreadableFileResponse)
    assert (report.accepted, report.failure) == (False, why)


def test_a_deleted_file_is_gone() -> None:
    gone = FileDeleted(file_id="file-1", blob="b", report_blob=None)
    assert folded("dataset", FILE, gone)["files"] == {}


def test_names_are_sealed_in_the_read_model() -> None:
    row = only(folded("dataset", FILE), FILES)
    assert row.name == FILE.terms.name
