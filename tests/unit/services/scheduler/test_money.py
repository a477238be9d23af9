"""Findings of the review of money, each as it happened: both deciders, reactions and ledger."""

from datetime import UTC, datetime
from typing import Final

from schemas.units import HOUR_MS
from services.scheduler.domain.job.quota import window_gpu_ms
from simulator.control_plane.samples import MINUTE
from tests.unit.services.scheduler.joined import TENANT, Joined

DECEMBER: Final = int(datetime(2026, 12, 1, tzinfo=UTC).timestamp()) * 1_000
FIRST_HOUR: Final = DECEMBER // HOUR_MS


def test_money_b4_a_node_that_dies_in_the_first_minute_of_a_month_credits_the_month_before() -> (
    None
):
    """Finding B4: the whole credit was a line of December, whose quota began at −10 h."""
    story = Joined(DECEMBER - 3 * HOUR_MS, hard_gpu_ms=20 * HOUR_MS)
    story.start()
    for hour in range(1, 4):
        story.wait(HOUR_MS)
        story.beat(hour * HOUR_MS)
    story.wait(MINUTE)
    story.beat(3 * HOUR_MS + MINUTE)
    story.wait(MINUTE // 2)
    story.beat(3 * HOUR_MS + MINUTE, silent=True)
    hours = range(FIRST_HOUR - 3, FIRST_HOUR)
    assert story.credits == [
        *(("lost", hour, HOUR_MS) for hour in hours),
        ("lost", FIRST_HOUR, MINUTE),
    ]
    assert story.billed == {}
    assert story.quota == {"2026-11": 0, "2026-12": 0}
    assert window_gpu_ms(story.job.state[TENANT], story.pool.at) >= 0


def test_money_b4_only_what_came_after_the_last_checkpoint_is_taken_back() -> None:
    story = Joined(DECEMBER - 3 * HOUR_MS)
    story.start()
    story.wait(3 * HOUR_MS)
    story.save(10, 90 * MINUTE)
    story.beat(3 * HOUR_MS)
    story.wait(5 * MINUTE)
    story.exit("failed", 3 * HOUR_MS + 5 * MINUTE, "platform")
    assert story.credits == [
        ("platform", FIRST_HOUR - 2, 30 * MINUTE),
        ("platform", FIRST_HOUR - 1, HOUR_MS),
        ("platform", FIRST_HOUR, 5 * MINUTE),
    ]
    assert story.billed == {FIRST_HOUR - 3: HOUR_MS, FIRST_HOUR - 2: 30 * MINUTE}
    assert sum(story.quota.values()) == 90 * MINUTE
