"""The end of a tenant's files, and what comes after it."""

import pytest
from immutables import Map

from schemas import errors
from schemas.dataset import (
    EraseUnnamed,
    FileUnreadable,
    PreparationFailed,
    RecordPrepared,
    RecordValidation,
    UnpinDataset,
)
from schemas.envelope import Rejected
from schemas.erasure import EraseFiles, FilesErased
from services.ingest.domain import erasure
from services.ingest.domain.state import INITIAL, TenantDatasets
from tests.unit.services.ingest.domain.test_decide import PREPARED, file, step


def test_security_h4_all_files_go_in_as_many_events_as_they_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(erasure, "FILES_OF_EVENT_MAX", 2)
    state = INITIAL
    for number in range(3):
        state, _ = step(state, file(f"file-{number}", "abc"[number]))
    state, events = step(state, EraseFiles())
    assert events == (FilesErased(files=("file-0", "file-1"), more=True),)
    state, events = step(state, EraseFiles())
    assert events == (FilesErased(files=("file-2",)),)
    assert state == Map({"acme": TenantDatasets(erased=True)})
    assert step(state, EraseFiles())[1] == ()


def test_security_h4_what_comes_late_is_ended_and_erased_again() -> None:
    state, _ = step(INITIAL, EraseFiles())
    erased, refused = step(state, file("late"))[1]
    assert erased == FilesErased()
    assert isinstance(refused, Rejected)
    assert refused.code == errors.ILLEGAL_STATE
    validation = RecordValidation(file_id="file-1", validation=None)
    unreadable, erased = step(state, validation)[1]
    assert (type(unreadable), erased) == (FileUnreadable, FilesErased())
    failed, erased = step(state, RecordPrepared(prepare_id="p", prepared=PREPARED))[1]
    assert (type(failed), erased) == (PreparationFailed, FilesErased())
    late = EraseUnnamed(blobs=("t/acme/files/x",), before=1)
    assert step(state, late)[1] == (FilesErased(),)
    assert step(state, UnpinDataset(job_id="ftjob-1"))[1] == ()
