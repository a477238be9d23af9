"""The audit of a run finds what differs between billing, deliveries and the journals."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from msgspec import structs

from schemas.account import DeliveryDue, TenantSuspended
from simulator.control_plane.audit import audit_run, check
from simulator.control_plane.control_plane_sim import ControlPlaneRun, play
from simulator.control_plane.plan import Size, draw
from simulator.engine.command_line import silence

SEED = 2


@pytest.fixture(scope="module")
def run() -> Iterator[ControlPlaneRun]:
    with silence():
        yield play(draw(SEED, Size()), Size())


def invariants(run: ControlPlaneRun) -> set[str]:
    return {text.partition(":")[0] for text in audit_run(run).violations}


def test_a_sound_run_has_jobs_leases_and_no_violation(run: ControlPlaneRun) -> None:
    audit, verdict = audit_run(run), check(run)
    assert audit.violations == verdict.violations == []
    assert verdict.counts["jobs"] == len(audit.quota.ended) > 0
    assert verdict.counts["leases"] == len(audit.meter.leases) > 0
    assert verdict.counts["commands"] > verdict.counts["jobs"]
    assert verdict.voided >= 0


def test_a_row_that_billing_lacks_has_twice_or_has_wrong_is_found(run: ControlPlaneRun) -> None:
    first, *rest = run.ledger
    wrong = {**first, "gpu_ms": first["gpu_ms"] + 1}
    for ledger in (rest, [first, *run.ledger], [wrong, *rest]):
        assert "ledger" in invariants(replace(run, ledger=ledger))


def test_a_bill_that_is_missing_is_found(run: ControlPlaneRun) -> None:
    assert run.bills
    assert invariants(replace(run, bills=run.bills[1:])) != set()


def test_a_run_that_did_not_finish_makes_no_progress(run: ControlPlaneRun) -> None:
    assert invariants(replace(run, finished=False)) == {"progress"}


def test_a_delivery_that_is_missing_is_found(
    run: ControlPlaneRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [
        decision
        for decision in run.context.decisions["account"]
        if not any(isinstance(event, DeliveryDue) for event in decision.events)
    ]
    assert len(kept) < len(run.context.decisions["account"])
    monkeypatch.setitem(run.context.decisions, "account", kept)
    assert invariants(run) == {"delivery"}


def test_a_suspension_that_jobs_do_not_know_is_found(
    run: ControlPlaneRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions = run.context.decisions["account"]
    suspended = structs.replace(decisions[-1], events=(TenantSuspended(),))
    monkeypatch.setitem(run.context.decisions, "account", [*decisions, suspended])
    assert invariants(run) == {"suspended"}


def test_a_service_that_died_or_stopped_is_named(
    run: ControlPlaneRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run.cluster, "named", ["job owner stands down"])
    monkeypatch.setattr(run.cluster, "died", ["billing: KeyError"])
    assert invariants(run) == {"false stop", "died"}
