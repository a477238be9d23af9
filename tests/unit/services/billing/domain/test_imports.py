"""Imports of accounts: few are open at a time, and each ends once."""

from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Rejected
from schemas.erasure import EraseTenant, TenantErasureBegun
from schemas.imports import (
    EndImport,
    ImportAdvanced,
    ImportEnded,
    ImportResult,
    ImportStarted,
    ImportTerms,
    RecordImport,
    StartImport,
)
from schemas.sealed import Sealed
from tests.unit.services.billing.domain.test_decide import refusal
from tests.unit.services.billing.domain.test_statements import tenant

SEALED = Sealed(key_id="import_1.1", nonce=b"n", ciphertext=b"c")
TERMS = ImportTerms(import_id="import_1", source="openai", url=SEALED, key=SEALED, key_id="key_1")
END = EndImport(result=ImportResult(import_id="import_1", outcome="completed"))
STEP = RecordImport(import_id="import_1", progress=SEALED)


def test_exit_kit_an_import_advances_and_ends_once() -> None:
    account = tenant()
    assert account.when(StartImport(terms=TERMS)) == (ImportStarted(terms=TERMS),)
    assert account.when(STEP) == (ImportAdvanced(import_id="import_1", progress=SEALED),)
    assert account.when(END) == (ImportEnded(result=END.result),)
    for late in (END, STEP):
        assert refusal(account.when(late)) == errors.NOT_FOUND


def test_exit_kit_a_tenant_has_two_open_imports_and_a_third_when_one_has_ended() -> None:
    account = tenant()
    for number in (1, 2):
        account.when(StartImport(terms=replace(TERMS, import_id=f"import_{number}")))
    third = StartImport(terms=replace(TERMS, import_id="import_3"))
    assert refusal(account.when(third)) == errors.CONCURRENCY_LIMIT
    account.when(END)
    assert account.when(third) == (ImportStarted(terms=third.terms),)


def test_exit_kit_the_erasure_of_a_tenant_ends_its_imports() -> None:
    account = tenant()
    account.when(StartImport(terms=TERMS))
    *_, ended, begun = account.when(EraseTenant())
    cancelled = ImportResult(import_id="import_1", outcome="cancelled")
    assert (ended, isinstance(begun, TenantErasureBegun)) == (ImportEnded(result=cancelled), True)
    [refused] = account.when(StartImport(terms=TERMS))
    assert isinstance(refused, Rejected)
