"""Quotas of a tenant's bytes, files and uploads."""

from msgspec.structs import replace

from schemas import errors
from schemas.dataset import (
    CancelUpload,
    Command,
    DeleteFile,
    FileContent,
    RecordValidation,
    RegisterFile,
)
from schemas.envelope import Rejected
from schemas.storage import FileTerms, Purpose, StorageQuota
from services.ingest.domain.quotas import used_bytes
from services.ingest.domain.state import DatasetsByTenant
from tests.unit.services.ingest.domain.test_uploads import (
    SEALED,
    SHA,
    after,
    complete,
    create,
    part,
    step,
)

QUOTA = StorageQuota(bytes=10, files=3, uploads=2)


def register(name: str, size: int, purpose: Purpose = "fine-tune") -> RegisterFile:
    return RegisterFile(
        file_id=name,
        terms=FileTerms(purpose=purpose, name=SEALED),
        content=FileContent(bytes=size, sha256=SHA, blob=f"t/acme/files/{name}"),
        quota=QUOTA,
    )


def refused(state: DatasetsByTenant, command: Command) -> str | None:
    """The code of the limit that refuses a command; None when it is accepted."""
    first = step(state, command)[1][0]
    if not isinstance(first, Rejected):
        return None
    assert first.code == errors.QUOTA_EXCEEDED
    return first.reason.code


def test_security_m1_bytes_of_files_have_a_quota_and_deleted_ones_do_not_count() -> None:
    state = after(register("a", 6))
    assert refused(state, register("b", 5)) == "bytes_at_most"
    state, _ = step(state, register("b", 4))
    state, _ = step(state, DeleteFile(file_id="a"))
    assert used_bytes(state["acme"]) == 4
    assert refused(state, register("c", 6)) is None


def test_security_m1_a_file_that_failed_its_check_counts_until_it_is_deleted() -> None:
    state = after(register("a", 10), RecordValidation(file_id="a", validation=None))
    assert state["acme"].files["a"].status == "rejected"
    assert refused(state, register("b", 1)) == "bytes_at_most"
    assert refused(step(state, DeleteFile(file_id="a"))[0], register("b", 1)) is None


def test_security_m1_pending_uploads_count_with_what_they_declare() -> None:
    upload = replace(create("u", size=8), quota=QUOTA)
    state = after(upload)
    assert refused(state, register("b", 3)) == "bytes_at_most"
    assert refused(state, replace(create("v", size=3), quota=QUOTA)) == "bytes_at_most"
    ended, _ = step(state, CancelUpload(upload_id="u"))
    assert refused(ended, register("b", 10)) is None
    state, _ = step(state, part("p", 8))
    state, _ = step(state, replace(complete("p", size=8), quota=QUOTA))
    assert used_bytes(state["acme"]) == 8  # once, as a file


def test_security_m1_files_and_uploads_have_a_quota_of_their_own() -> None:
    state = after(*(register(f"f{number}", 1) for number in range(QUOTA.files)))
    assert refused(state, register("more", 1)) == "files_at_most"
    assert refused(state, replace(create("u", size=1), quota=QUOTA)) == "files_at_most"
    state = after(*(replace(create(f"u{n}", size=1), quota=QUOTA) for n in range(QUOTA.uploads)))
    assert refused(state, replace(create("more", size=1), quota=QUOTA)) == "uploads_at_most"


def test_base_models_of_operators_do_not_count() -> None:
    state = after(replace(register("base", 1_000, "base-model"), quota=None))
    assert used_bytes(state["acme"]) == 0
    assert refused(state, register("a", 10)) is None
