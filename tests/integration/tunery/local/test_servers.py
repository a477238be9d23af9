"""The four servers answer real clients, and keep acknowledged data over kill -9."""

import asyncio
import uuid

import asyncpg
import boto3
import redis.asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from botocore.config import Config

from tunery.local.stack import Stack


async def test_kafka_keeps_acknowledged_records_over_a_kill(servers: Stack) -> None:
    topic = f"keep-{uuid.uuid4().hex}"
    admin = AIOKafkaAdminClient(**servers.kafka_as().client_options)
    await admin.start()
    reply = await admin.create_topics([NewTopic(topic, 1, 1)])
    assert reply.topic_errors[0][1] == 0
    await admin.close()
    await append(servers, topic, b"before")
    servers.kill("kafka")
    await servers.await_ready("kafka")
    await append(servers, topic, b"after")
    consumer = AIOKafkaConsumer(
        topic, **servers.kafka_as().client_options, auto_offset_reset="earliest"
    )
    await consumer.start()
    values = [(await asyncio.wait_for(consumer.getone(), 180)).value for _ in range(2)]
    await consumer.stop()
    assert values == [b"before", b"after"]


async def append(servers: Stack, topic: str, value: bytes) -> None:
    producer = AIOKafkaProducer(**servers.kafka_as().client_options, acks="all")
    await producer.start()
    try:
        await asyncio.wait_for(producer.send_and_wait(topic, value), 180)
    finally:
        await producer.stop()


async def test_postgres_keeps_commits_over_a_kill(servers: Stack) -> None:
    table = f"t{uuid.uuid4().hex}"
    connection = await asyncpg.connect(servers.postgres_dsn)
    await connection.execute(f"CREATE TABLE {table} (n int)")
    await connection.execute(f"INSERT INTO {table} VALUES (41), (1)")  # noqa: S608  # our own name
    servers.kill("postgres")
    await servers.await_ready("postgres")
    connection = await asyncpg.connect(servers.postgres_dsn)
    assert await connection.fetchval(f"SELECT sum(n) FROM {table}") == 42  # noqa: S608  # our own
    await connection.close()


async def test_valkey_requires_its_password(servers: Stack) -> None:
    client = redis.asyncio.from_url(servers.valkey_url)
    key = uuid.uuid4().hex
    assert await client.incrby(key, 7) == 7
    await client.aclose()


def test_s3_conditional_put_has_one_winner(servers: Stack) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=servers.s3_endpoint,
        aws_access_key_id=servers.s3_access_key,
        aws_secret_access_key=servers.s3_secret_key,
        region_name="us-east-1",
        config=Config(signature_version="s3v4"),
    )
    key = uuid.uuid4().hex
    client.put_object(Bucket=servers.s3_bucket, Key=key, Body=b"first", IfNoneMatch="*")
    try:
        client.put_object(Bucket=servers.s3_bucket, Key=key, Body=b"second", IfNoneMatch="*")
        refused = ""
    except client.exceptions.ClientError as problem:
        refused = problem.response["Error"]["Code"]
    assert refused == "PreconditionFailed"
    body = client.get_object(Bucket=servers.s3_bucket, Key=key)["Body"]
    assert body.read() == b"first"
    body.close()
    client.close()
