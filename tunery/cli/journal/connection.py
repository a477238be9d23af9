"""Connects `tunery journal` to Kafka."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tunery.local import settings
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.platform.bus.kafka import KafkaLog
from tunery.platform.connections import patient_kafka_settings
from tunery.runtime.bus.abstract import BusError


@asynccontextmanager
async def open_log(folders: DataDir) -> AsyncIterator[KafkaLog]:
    """Connect to Kafka; close the connection at the end.

    Raises LocalError when there is no stack, or its Kafka does not answer.
    """
    log_config = settings.log_settings(folders, os.environ)
    log = KafkaLog(patient_kafka_settings(log_config))
    try:
        yield log
    except BusError as error:
        raise LocalError(
            f"Kafka at {log_config.kafka_bootstrap} failed: {error}",
            "see `tunery status`; start the stack with `tunery up`",
        ) from error
    finally:
        await log.close()
