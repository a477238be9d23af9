"""Erasure of a tenant's jobs: all open work is cancelled first, in batches."""

import pytest
from msgspec.structs import replace

from schemas.envelope import Rejected
from schemas.erasure import CloseJobs, JobsClosed, JobsErased
from schemas.job import RecordFile, ResumeJob
from schemas.serving import ServingTermUnwanted
from schemas.sweep import SweepCancelled
from services.scheduler.domain.job import erasure
from simulator.control_plane.samples import limits, submit
from tests.unit.services.scheduler.domain.job.test_serving import closed as term_closed
from tests.unit.services.scheduler.domain.job.test_serving import wanted
from tests.unit.services.scheduler.domain.job.test_sweeps import sweep
from tests.unit.services.scheduler.fold import names
from tests.unit.services.scheduler.lives import closed, granted, new_tenant, pinned, prepared


def test_security_h4_a_tenant_without_jobs_is_done_at_once() -> None:
    decider = new_tenant()
    assert decider.when(CloseJobs()) == (JobsClosed(), JobsErased())
    assert decider.when(CloseJobs()) == ()


def test_security_h4_jobs_sweeps_and_serving_pools_end_before_it_is_done() -> None:
    decider = new_tenant()
    decider.accept(limits(), submit(), prepared(), pinned(), granted(), sweep(), wanted(1))
    events = decider.when(CloseJobs())
    assert JobsErased() not in events
    assert any(isinstance(event, SweepCancelled) for event in events)
    (term,) = (event for event in events if isinstance(event, ServingTermUnwanted))
    again = decider.when(CloseJobs())
    assert names(again) == ["JobsClosed"], "nothing is cancelled twice"
    assert JobsErased() not in decider.when(term_closed(term.term_id))
    assert decider.when(closed(1, "preempted", ended_by="tenant"))[-1] == JobsErased()
    assert decider.when(CloseJobs()) == ()


def test_security_h4_nothing_is_submitted_or_resumed_any_more() -> None:
    decider = new_tenant()
    decider.accept(CloseJobs())
    for command in (submit(), sweep(), wanted(1), ResumeJob(job_id="ftjob-1")):
        (refused,) = decider.when(command)
        assert isinstance(refused, Rejected)
        assert refused.reason.code == "tenant_erased"
    assert decider.when(RecordFile(file_id="file-1", accepted=False, tokens=())) == ()


def test_security_h4_many_jobs_are_cancelled_in_several_decisions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decider = new_tenant()
    decider.accept(limits())
    for number in range(2):
        decider.accept(replace(submit(), job_id=f"ftjob-{number}"))
    monkeypatch.setattr(erasure, "CANCELLED_MAX", 1)
    first, second = decider.when(CloseJobs()), decider.when(CloseJobs())
    assert first[0] == JobsClosed(more=True)
    assert JobsErased() not in first
    assert (second[0], second[-1]) == (JobsClosed(), JobsErased())
