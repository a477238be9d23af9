"""Given events of `dataset`, then rows of files."""

from schemas.dataset import FileContent, FileDeleted, FileRegistered, FileTerms, FileUnreadable
from schemas.sealed import Sealed
from services.gateway.files.responses import file_response, validation_response
from services.gateway.files.tables import FILES
from tests.unit.services.gateway.view_rows import folded, only

FILE = FileRegistered(
    file_id="file-1",
    terms=FileTerms(purpose="fine-tune", name=Sealed(key_id="k", nonce=b"n", ciphertext=b"c")),
    content=FileContent(bytes=10, sha256="ab" * 32, blob="t/acme/files/file-1"),
)


def test_a_file_that_cannot_be_read_says_why() -> None:
    row = only(folded("dataset", FILE, FileUnreadable(file_id="file-1", failure="gone")), FILES)
    shown = file_response(row, lambda sealed: "rows.jsonl")
    assert shown.status == "error"
    assert shown.status_details == "The file could not be checked: gone"
    assert validation_response(row, None).accepted is False


def test_a_deleted_file_is_gone() -> None:
    gone = FileDeleted(file_id="file-1", blob="b", report_blob=None)
    assert folded("dataset", FILE, gone)["files"] == {}


def test_names_are_sealed_in_the_read_model() -> None:
    row = only(folded("dataset", FILE), FILES)
    assert row.name == FILE.terms.name
