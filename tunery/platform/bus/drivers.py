"""The log over the client library that the settings name."""

from tunery.platform.bus.kafka import KafkaLog, KafkaSettings
from tunery.platform.settings import SettingsError
from tunery.runtime.bus.abstract import OperatedLog


def open_log(settings: KafkaSettings) -> OperatedLog:
    """Return a log that connects when it is used. Raises SettingsError."""
    if settings.driver == "aiokafka":
        return KafkaLog(settings)
    try:
        from tunery.platform.bus.confluent import ConfluentLog  # an extra
    except ModuleNotFoundError as error:
        raise SettingsError(
            "TUNERY_KAFKA_DRIVER is confluent, and confluent-kafka is not installed: install "
            "tunery[confluent], or unset it"
        ) from error
    return ConfluentLog(settings)
