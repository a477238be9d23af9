"""Broker time is bounded by an owner's own clocks."""

from tunery.runtime.hosts.broker_time import AHEAD_MS_MAX, BrokerTime

HOUR = 3_600_000
MINUTE = 60_000
T0 = 1_000 * HOUR


class TwoClocks:
    """A monotonic and a wall clock that are set by hand."""

    def __init__(self) -> None:
        self.monotonic, self.wall = 0, T0

    def monotonic_ms(self) -> int:
        return self.monotonic

    def now_ms(self) -> int:
        return self.wall

    async def sleep(self, ms: int) -> None:
        self.run(ms)

    def run(self, ms: int) -> None:
        self.monotonic += ms
        self.wall += ms


def test_money_b5_a_clock_that_was_an_hour_ahead_stops_time_for_a_minute_at_most() -> None:
    """Finding B5: fifty minutes of training were billed nothing, and no cap or tick was due."""
    clock = TwoClocks()
    time = BrokerTime(clock, T0, T0)
    clock.run(1_000)
    at = time.believe(T0 + HOUR)
    assert at == clock.wall + AHEAD_MS_MAX
    clock.run(50 * MINUTE)
    assert max(at, time.believe(clock.wall)) == clock.wall


def test_many_records_in_a_row_lead_no_further_than_one() -> None:
    clock = TwoClocks()
    time = BrokerTime(clock, T0, T0)
    for _ in range(1_000):
        clock.run(10)
        assert time.believe(clock.wall + HOUR) <= clock.wall + AHEAD_MS_MAX + 100


def test_money_b5_a_claim_while_the_clock_is_ahead_is_bounded_too() -> None:
    clock = TwoClocks()
    assert BrokerTime(clock, T0 - HOUR, T0 + HOUR).now() == T0
    assert BrokerTime(clock, T0 + MINUTE, T0 + HOUR).now() == T0 + MINUTE


def test_an_owner_without_a_wall_clock_that_is_right_follows_the_brokers() -> None:
    clock = TwoClocks()
    clock.wall = 0
    time = BrokerTime(clock, T0, T0)
    clock.run(HOUR)
    assert time.believe(T0 + HOUR) == T0 + HOUR
    clock.run(HOUR)
    drift = HOUR // 100
    assert time.believe(T0 + 2 * HOUR + drift) == T0 + 2 * HOUR + drift


def test_after_a_sleep_of_the_machine_its_wall_clock_confirms_the_brokers() -> None:
    clock = TwoClocks()
    time = BrokerTime(clock, T0, T0)
    clock.wall += 3 * HOUR
    assert time.now() == T0 + 3 * HOUR  # so that what has become due meanwhile has its tick
    assert time.believe(T0 + 3 * HOUR) == T0 + 3 * HOUR
    assert time.now() == T0 + 3 * HOUR


def test_a_clock_that_steps_back_is_believed() -> None:
    clock = TwoClocks()
    time = BrokerTime(clock, T0, T0)
    assert time.believe(T0 - HOUR) == T0 - HOUR


def test_review2_e3_a_wall_clock_that_was_set_leads_astray_until_the_next_record() -> None:
    clock = TwoClocks()
    time = BrokerTime(clock, T0, T0)
    clock.wall += HOUR
    clock.run(1_000)
    assert time.now() == T0 + HOUR + 1_000
    time.believe(T0 + 1_000)
    clock.run(1_000)
    assert time.now() == T0 + 2_000
