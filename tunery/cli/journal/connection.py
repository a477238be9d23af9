"""The log that `tunery journal` works on."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from tunery.local import settings
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.runtime.bus.abstract import BusError
from tunery.runtime.bus.kafka import KafkaLog
from tunery.runtime.connections import kafka_settings
from tunery.runtime.settings import LogSettings


@asynccontextmanager
async def opened(folders: DataDir) -> AsyncIterator[KafkaLog]:
    """Raises LocalError when there is no stack, or its Kafka does not answer."""
    found = log_settings(folders, os.environ)
    log = KafkaLog(kafka_settings(found))
    try:
        yield log
    except BusError as error:
        raise LocalError(
            f"Kafka at {found.kafka_bootstrap}: {error}",
            "see `tunery status`; start the stack with `tunery up`",
        ) from error
    finally:
        await log.close()


def log_settings(folders: DataDir, environ: Mapping[str, str]) -> LogSettings:
    """Of $TUNERY_KAFKA_BOOTSTRAP, else of the stack. Raises LocalError."""
    bootstrap = environ.get("TUNERY_KAFKA_BOOTSTRAP")
    return LogSettings(
        kafka_bootstrap=bootstrap or settings.of_stack(folders, environ).kafka_bootstrap
    )
