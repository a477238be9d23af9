"""Prepares a Kafka for the services: their topics, and their rights."""

from collections.abc import Mapping

from schemas.topics import PARTITIONS, TOPICS
from tunery.runtime.bus.grants import grants_of, service_of
from tunery.runtime.bus.kafka import KafkaLog, KafkaSettings
from tunery.runtime.bus.kafka_accounts import Account, provide_accounts


async def prepare_kafka(settings: KafkaSettings, names: Mapping[str, str]) -> None:
    """Create missing topics, and give principals exactly their rights. Raises Unavailable.

    settings: of an operator; names: how Kafka names each service and node.
    """
    log = KafkaLog(settings)
    try:
        await log.create(TOPICS, PARTITIONS)
    finally:
        await log.close()
    accounts = {
        name: Account(grants_of(service_of(principal))) for principal, name in names.items()
    }
    await _provide(settings, accounts)


async def add_account(settings: KafkaSettings, principal: str, password: str) -> None:
    """Give a service or node this password (SCRAM-SHA-512) and exactly its rights.

    settings: of an operator. Raises Unavailable.
    """
    account = Account(grants_of(service_of(principal)), password)
    await _provide(settings, {principal: account})


async def _provide(settings: KafkaSettings, accounts: Mapping[str, Account]) -> None:
    host, _, port = settings.bootstrap.split(",")[0].strip().rpartition(":")
    await provide_accounts(settings.login, host, int(port), accounts)
