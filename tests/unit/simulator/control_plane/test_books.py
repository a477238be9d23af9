"""The second books find bills that are wrong at some prefix, or do not agree at the end."""

from schemas.envelope import Tick
from schemas.job import HoldTaken, JobSubmitted
from schemas.pool import UsageCredited, UsageSliced
from schemas.units import HOUR_MS
from services.scheduler.domain.job.quota import month_of
from simulator.control_plane.books import SecondBooks
from simulator.control_plane.samples import T0
from tests.unit.services.scheduler.world import World

HOUR_UTC = T0 // HOUR_MS


def run_one_job() -> World:
    world = World(3, chaos=False)
    world.submit("acme")
    world.drain()
    while world.books.quota.open_jobs or world.held:
        world.step()
    return world


def events_of(world: World, kind: type[object]) -> list[object]:
    journals = (*world.job.journal, *world.pool.journal)
    return [event for _, events in journals for event in events if isinstance(event, kind)]


def test_a_quiet_job_leaves_books_that_agree() -> None:
    books = run_one_job().books
    assert books.violations == []
    assert books.violations_at_the_end() == []
    assert sum(books.net.values()) > 0
    assert {month_of(hour_utc) for _, _, hour_utc in books.meter.net} == {month_of(HOUR_UTC)}


def test_a_bill_above_the_hold_is_found_when_it_is_written() -> None:
    world = run_one_job()
    (usage, *_), (hold, *_) = events_of(world, UsageSliced), events_of(world, HoldTaken)
    assert isinstance(usage, UsageSliced)
    assert isinstance(hold, HoldTaken)
    books = world.books
    credit = UsageCredited(
        lease=usage.lease,
        hour_utc=usage.hour_utc,
        lost_gpu_ms=hold.estimate.hold_gpu_ms,
        cause="lost",
    )
    books.enter_pool(Tick(), (credit,), world.at)
    assert any(text.startswith("hold: ") for text in books.violations)
    assert any(text.startswith("ledger: ") for text in books.violations)


def test_a_job_without_an_end_is_found_at_the_end() -> None:
    world = run_one_job()
    (submitted, *_) = events_of(world, JobSubmitted)
    books = SecondBooks({}, {})
    books.enter_job("acme", Tick(), (submitted,), T0)
    assert books.violations_at_the_end() == ["end: ftjob-0 never ended"]
