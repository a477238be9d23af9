"""Quota against ledger: equal to the unit, or the first difference by tenant and month."""

from immutables import Map

from services.scheduler.domain.job.state import TenantJobs
from tunery.cli.replay.states import quota_by_month, unequal
from tunery.runtime.journal.fold import Fold
from tunery.runtime.tools.verify import Replay


def test_quota_is_read_from_every_partition() -> None:
    acme = TenantJobs(used_gpu_ms=Map({"2026-10": 5, "2026-11": 7}))
    beta = TenantJobs(used_gpu_ms=Map({"2026-11": 9}))
    replays = [
        Replay(0, Fold(Map({"acme": acme})), accepted=1, void=0),
        Replay(1, Fold(Map({"beta": beta})), accepted=1, void=0),
    ]
    assert quota_by_month(replays) == {
        ("acme", "2026-10"): 5,
        ("acme", "2026-11"): 7,
        ("beta", "2026-11"): 9,
    }


def test_one_unit_is_a_difference() -> None:
    assert unequal({("acme", "2026-11"): 7}, {("acme", "2026-11"): 7}) is None
    assert unequal({("acme", "2026-11"): 7}, {("acme", "2026-11"): 8}) == (
        "acme, 2026-11: quota 7 GPU-ms, ledger 8 GPU-ms"
    )


def test_rows_on_one_side_only_are_a_difference() -> None:
    assert unequal({}, {("acme", "2026-11"): 1}) is not None
    assert unequal({("acme", "2026-11"): 1}, {}) is not None
    assert unequal({("acme", "2026-11"): 0}, {}) is None
