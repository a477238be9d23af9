"""Settings without a broker; `tests/integration` has them on real ones."""

import pytest

from tunery.platform.bus.kafka import KafkaSettings
from tunery.platform.bus.kafka_configs import ClusterState, alter_topics, describe
from tunery.runtime.bus.abstract import Unavailable

AWAY = KafkaSettings("127.0.0.1:1,127.0.0.1:2")


async def test_review2_p5_every_broker_of_the_list_is_tried() -> None:
    both = r"Kafka at 127\.0\.0\.1:1.*; Kafka at 127\.0\.0\.1:2"
    with pytest.raises(Unavailable, match=both):
        await describe(AWAY, ["topic"])
    with pytest.raises(Unavailable, match=both):
        await alter_topics(AWAY, {"topic": {"retention.ms": "1"}})


def test_brokers_that_do_not_show_their_settings_live() -> None:
    assert ClusterState({1: {}, 2: {}}, {3: "it does not answer"}).live == 3
