"""Events of use: one for each job, hour and kind, and the same at each repetition."""

from schemas.account import Announce
from schemas.billing import HourlyUse
from schemas.envelope import Header
from schemas.pool import UsageCredited, UsageSliced
from schemas.session import SessionTokens
from schemas.topics import ACCOUNT
from services.exporter.domain.feed import usage_events
from services.exporter.domain.focus import ExportedCharge, charges_of_use
from services.exporter.domain.ranges import ExportRange
from tests.unit.services.exporter.domain.test_focus import ACCOUNTS
from tests.unit.services.exporter.domain.test_sessions import answered, charge_of
from tests.unit.services.exporter.journals import HOUR, credited, lease, sliced
from tunery.runtime.journal.reader import Position

WRITTEN = ExportRange(first=Position(7), end=Position(12))
EVENTS: tuple[UsageSliced | UsageCredited, ...] = (
    sliced(lease(1), 10),
    sliced(lease(1), 20, HOUR + 1),
    sliced(lease(2, "other"), 30),
    sliced(lease(1), 5),
    credited(lease(1), 4),
)


def charge_at(offset: int, event: UsageSliced | UsageCredited) -> ExportedCharge:
    header = Header(
        stream="pool",
        partition=3,
        offset=offset,
        at=1_000 * offset,
        key="default",
        tenant="",
        seq=offset,
        command_id="c",
        incarnation=0,
    )
    (only,) = charges_of_use(header, event, ACCOUNTS, "Tunery")
    return only


CHARGES = [charge_at(offset, event) for offset, event in enumerate(EVENTS, 7)]


def test_slices_of_a_job_in_an_hour_are_one_event_and_credits_another() -> None:
    events = [feed.event for feed in usage_events("pool", 3, WRITTEN, CHARGES)]
    assert [(event.object_id, event.usage) for event in events] == [
        ("ftjob-1", HourlyUse(hour_utc=HOUR, kind="credit", gpu_ms=-4)),
        ("ftjob-1", HourlyUse(hour_utc=HOUR, kind="usage", gpu_ms=15)),
        ("ftjob-1", HourlyUse(hour_utc=HOUR + 1, kind="usage", gpu_ms=20)),
        ("ftjob-2", HourlyUse(hour_utc=HOUR, kind="usage", gpu_ms=30)),
    ]
    assert [event.created_at for event in events] == [11_000, 10_000, 8_000, 9_000]
    assert {event.event_type for event in events} == {"usage.recorded"}


def test_a_repetition_has_the_same_events_under_the_same_ids() -> None:
    again = [charge_at(offset, event) for offset, event in enumerate(EVENTS, 7)]
    assert list(usage_events("pool", 3, WRITTEN, again)) == list(
        usage_events("pool", 3, WRITTEN, CHARGES)
    )


def test_the_log_decides_each_event_of_a_partition_once() -> None:
    """Sources rise with ranges and their events: a range that is announced again is dropped."""
    following = ExportRange(first=Position(12), end=Position(13))
    feeds = [
        *usage_events("pool", 3, WRITTEN, CHARGES),
        *usage_events("pool", 3, following, CHARGES),
    ]
    sources = [feed.source for feed in feeds]
    assert {(source.stream, source.partition) for source in sources} == {("exports/pool", 3)}
    numbers = [(source.incarnation, source.offset, source.index) for source in sources]
    assert numbers == sorted({*numbers})
    assert ACCOUNT.may_name("exporter", sources[0].stream, Announce)


def test_tokens_of_a_session_in_an_hour_are_one_event_whose_time_is_none() -> None:
    charges = [*CHARGES, charge_of(answered(10, 2)), charge_of(answered(5, 3, sampled=7))]
    (event,) = [
        feed.event
        for feed in usage_events("session", 3, WRITTEN, charges)
        if feed.event.object_id == "session-1"
    ]
    tokens = SessionTokens(train_tokens=15, prefill_tokens=5, sample_tokens=7)
    assert event.usage == HourlyUse(hour_utc=HOUR, kind="usage", gpu_ms=0, session=tokens)
    (source, *_) = [feed.source for feed in usage_events("session", 3, WRITTEN, charges)]
    assert ACCOUNT.may_name("exporter", source.stream, Announce)


def test_ids_are_of_the_range_and_of_the_partition() -> None:
    following = ExportRange(first=Position(12), end=Position(13))
    feeds = [
        *usage_events("pool", 3, WRITTEN, CHARGES),
        *usage_events("pool", 4, WRITTEN, CHARGES),
        *usage_events("pool", 3, following, CHARGES),
    ]
    assert len({feed.event.event_id for feed in feeds}) == len(feeds)
    assert len({feed.source for feed in feeds}) == len(feeds)
