"""The log of librdkafka without a broker: with one it is tested in tests/integration."""

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError

from tunery.platform.bus import confluent
from tunery.platform.bus.confluent import ConfluentLog, LibrdkafkaOptions
from tunery.platform.bus.kafka import KafkaSettings
from tunery.runtime.bus.abstract import Unavailable

NOWHERE: Final = "127.0.0.1:1"
SETTINGS: Final = KafkaSettings(
    NOWHERE, send_ms_max=500, append_ms_max=500, request_ms_max=500, driver="confluent"
)


async def test_a_broker_that_is_not_there_is_named_and_not_asked_again_at_once() -> None:
    log = ConfluentLog(SETTINGS)
    with pytest.raises(Unavailable, match=f"Kafka at {NOWHERE}: "):
        await log.writer("journal", 0)
    with pytest.raises(Unavailable, match=f"Kafka at {NOWHERE}: "):
        await log.ends("journal", (0,))
    with pytest.raises(Unavailable, match=f"Kafka at {NOWHERE}: "):
        await log.send("commands", b"key", b"value", 0)
    with pytest.raises(Unavailable, match="did not answer a moment ago"):
        await log.send("commands", b"key", b"value", 0)
    await log.close()


async def test_a_reader_waits_for_a_broker_and_closes_without_one() -> None:
    log = ConfluentLog(SETTINGS)
    reader = await log.reader("journal", {0: 0})
    assert await reader.poll(50, 10) == []
    await reader.close()
    await log.close()


class Brokers:
    """The admin client of brokers that answer, or do not."""

    away = True

    def list_offsets(self, requests: Mapping[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        return {partition: self.answer() for partition in requests}

    def answer(self) -> Future[Any]:
        future = Future[Any]()
        if not self.away:
            future.set_result(SimpleNamespace(offset=7))
        return future


async def test_an_error_that_is_over_is_not_given_as_the_cause_of_a_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers, options = Brokers(), LibrdkafkaOptions(SETTINGS)
    monkeypatch.setattr(confluent, "AdminClient", lambda _: brokers)
    monkeypatch.setattr(confluent, "LibrdkafkaOptions", lambda _: options)
    log = ConfluentLog(SETTINGS)
    options.last_error = KafkaError(KafkaError.BROKER_NOT_AVAILABLE)
    with pytest.raises(Unavailable, match="after KafkaError"):
        await log.ends("journal", (0,))
    brokers.away = False
    assert await log.ends("journal", (0,)) == {0: 7}
    brokers.away = True
    with pytest.raises(Unavailable) as failure:
        await log.ends("journal", (0,))
    assert "after" not in str(failure.value)
    await log.close()
