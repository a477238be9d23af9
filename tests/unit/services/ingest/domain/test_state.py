"""Queries of the state: a pin's files, their hashes, preparations without a source."""

from immutables import Map

from schemas.dataset import PinTerms
from services.ingest.domain.state import (
    FileState,
    Preparation,
    TenantDatasets,
    orphaned_preparations,
    source_hashes,
)
from tests.unit.services.ingest.domain.test_decide import SPEC

A, B, C = "a" * 64, "b" * 64, "c" * 64


def datasets(**hashes: str) -> TenantDatasets:
    files = {
        name: FileState(purpose="fine-tune", sha256=sha256, blob=f"blobs/{name}")
        for name, sha256 in hashes.items()
    }
    preparations = {
        "q": Preparation(sources=(A, B)),
        "p": Preparation(sources=(A,)),
        "r": Preparation(sources=(C,)),
    }
    return TenantDatasets(files=Map(files), preparations=Map(preparations))


def pin(training: str, validation: str | None) -> PinTerms:
    return PinTerms(training_file=training, validation_file=validation, spec=SPEC)


def test_a_pin_has_one_or_two_files_the_training_file_first() -> None:
    assert pin("f", None).files == ("f",)
    assert pin("f", "a").files == ("f", "a")


def test_hashes_are_those_of_the_files_that_exist() -> None:
    tenant = datasets(f=A, g=B)
    assert source_hashes(tenant, pin("g", "f")) == (B, A)
    assert source_hashes(tenant, pin("gone", "f")) == (A,)
    assert source_hashes(TenantDatasets(), pin("f", None)) == ()


def test_the_last_file_of_a_content_takes_its_preparations_along_in_order_of_id() -> None:
    assert orphaned_preparations(datasets(f=A, g=B), "f") == ("p", "q")


def test_preparations_stay_while_another_file_has_the_same_content() -> None:
    assert orphaned_preparations(datasets(f=A, copy=A), "f") == ()


def test_a_file_that_was_never_prepared_orphans_no_preparation() -> None:
    assert orphaned_preparations(datasets(f="d" * 64), "f") == ()
