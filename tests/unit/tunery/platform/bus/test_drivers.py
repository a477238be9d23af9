import sys

import pytest

from tunery.platform.bus.broker_settings import Driver
from tunery.platform.bus.confluent import ConfluentLog
from tunery.platform.bus.drivers import open_log
from tunery.platform.bus.kafka import KafkaLog, KafkaSettings
from tunery.platform.settings import SettingsError


async def test_the_settings_name_the_client_and_aiokafka_is_the_default() -> None:
    chosen: dict[Driver, type[object]] = {"aiokafka": KafkaLog, "confluent": ConfluentLog}
    for driver, kind in chosen.items():
        log = open_log(KafkaSettings("127.0.0.1:1", driver=driver))
        assert type(log) is kind
        await log.close()
    assert KafkaSettings("127.0.0.1:1").driver == "aiokafka"


def test_a_client_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tunery.platform.bus.confluent", None)
    with pytest.raises(SettingsError, match=r"confluent-kafka is not installed: .*\[confluent\]"):
        open_log(KafkaSettings("127.0.0.1:1", driver="confluent"))
