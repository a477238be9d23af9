"""Decisions are counted by result and code, and timed."""

from collections import Counter

from prometheus_client import REGISTRY

from examples.first_stream import HoldSeats, ReleaseSeats
from schemas import errors
from schemas.envelope import Idempotency
from schemas.streams import PARTITIONS
from tests.unit.tunery.runtime.hosts.toy_service import toy, until
from tunery.runtime.hosts.decisions import DecisionMeter


def value_of(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


NAMES = {
    "accepted": ("tunery_decisions_total", {"result": "accepted"}),
    "rejected": ("tunery_decisions_total", {"result": "rejected"}),
    "repeated": ("tunery_decisions_total", {"result": "repeated"}),
    "not_held": ("tunery_rejections_total", {"code": "not_held"}),
    "timed": ("tunery_decision_seconds_count", {}),
    "lags": ("tunery_command_lag_seconds_count", {}),
    "claims": ("tunery_owner_claims_total", {}),
}


def figures() -> Counter[str]:
    return Counter(
        {
            short: int(value_of(name, stream="seats", **labels))
            for short, (name, labels) in NAMES.items()
        }
    )


async def test_what_an_owner_decides_is_counted_by_result_and_code() -> None:
    before = figures()
    async with toy() as service:
        for _ in range(2):
            await service.runtime.sender.send(
                "seats", "a", "a", HoldSeats(seats=1), idempotency=Idempotency(key="k", body="x")
            )
        await service.send("a", ReleaseSeats(seats=9))

        async def settled() -> bool:
            return (figures() - before)["rejected"] == 1

        await until(settled)
    new = figures() - before
    assert (new["accepted"], new["repeated"], new["not_held"]) == (1, 1, 1)
    assert (new["timed"], new["lags"], new["claims"]) == (3, 3, PARTITIONS)


def test_what_alerts_watch_begins_at_zero_so_that_the_first_is_growth() -> None:
    DecisionMeter("begun")
    for code in (errors.INTERNAL, errors.TOO_LARGE):
        labels = {"stream": "begun", "code": code}
        assert REGISTRY.get_sample_value("tunery_rejections_total", labels) == 0
    assert REGISTRY.get_sample_value("tunery_owner_stand_downs_total", {"stream": "begun"}) == 0
