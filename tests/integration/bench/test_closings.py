"""The bench of months that end, over a Kafka and a PostgreSQL of its own."""

from bench.closings import TURN, closings


async def test_review2_e3_each_tenants_month_ends_and_is_closed_over_a_real_kafka() -> None:
    tenants = 20
    figures = await closings(tenants, minutes=5)
    assert {name: figures[name] for name in TURN.values()} == dict.fromkeys(TURN.values(), tenants)
