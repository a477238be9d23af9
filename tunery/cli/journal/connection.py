"""Connects commands of operators to Kafka, and to what was archived of its journals."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tunery.cli.backup.surroundings import storage_settings
from tunery.local import settings
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.platform.bus.kafka import KafkaLog
from tunery.platform.connections import archived, patient_kafka_settings
from tunery.runtime.bus.abstract import ArchiveAway, ArchiveDamaged, BusError
from tunery.runtime.tools.archived_log import ArchivedLog


@asynccontextmanager
async def open_log(folders: DataDir) -> AsyncIterator[ArchivedLog]:
    """Connect to Kafka; close the connection at the end.

    Raises LocalError when there is no stack, or its Kafka does not answer.
    """
    log_config = settings.log_settings(folders, os.environ)
    kafka = KafkaLog(patient_kafka_settings(log_config))
    log = archived(kafka, lambda: storage_settings(folders, os.environ))
    try:
        yield log
    except (ArchiveAway, ArchiveDamaged) as error:
        raise LocalError(str(error), error.fix) from error
    except BusError as error:
        raise LocalError(
            f"Kafka at {log_config.kafka_bootstrap} failed: {error}",
            "see `tunery status`; start the stack with `tunery up`",
        ) from error
    finally:
        await log.close()
