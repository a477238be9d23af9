from schemas.streams import PARTITIONS
from schemas.topics import TOPICS
from tunery.platform.memory_servers import memory_servers


async def test_every_topic_of_the_catalogue_is_there() -> None:
    servers = await memory_servers()
    assert {name: len(partitions) for name, partitions in servers.log.topics.items()} == {
        topic.name: topic.partitions or PARTITIONS for topic in TOPICS
    }


async def test_services_share_the_log_and_have_stores_of_their_own() -> None:
    servers = await memory_servers()
    billing, gateway = servers.runtime("billing"), servers.runtime("gateway")
    assert billing.log is gateway.log
    assert billing.store is not gateway.store
