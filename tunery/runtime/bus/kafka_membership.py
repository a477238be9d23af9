"""Consumer groups used only to assign partitions to processes; records are read elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError

from schemas.units import Ms
from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.watchdog import beat

CONNECT_MS_MAX: Final = 3_000
NEVER_MS: Final = 2_147_483_647  # an assignment-only member does not poll
CLOSE_MS_MAX: Final = 2_000
HEARTBEATS_PER_SESSION: Final = 10  # a member learns at its next one that another has left
CHECK_MS: Final = 2_000  # how often a membership looks for errors of its client


async def _start_consumer(consumer: Any, bootstrap: object) -> Any:
    """Raises Unavailable."""
    try:
        async with asyncio.timeout(CONNECT_MS_MAX / 1_000):
            await consumer.start()
    except (KafkaError, OSError, TimeoutError) as error:
        await _stop_consumer(consumer)
        raise Unavailable(f"Kafka at {bootstrap}: {error!r}") from error
    except BaseException:
        await _stop_consumer(consumer)
        raise
    return consumer


async def _stop_consumer(consumer: Any) -> None:
    try:
        async with asyncio.timeout(CLOSE_MS_MAX / 1_000):
            await consumer.stop()
    except (KafkaError, OSError, TimeoutError):
        return  # the consumer is not used again, and its sockets close with it
    except asyncio.CancelledError:
        # aiokafka lets a cancellation of its own tasks out while the broker is away; only one
        # that was meant for us may end the caller
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Reports assignments. Nothing is fetched: all partitions are paused."""

    def __init__(self, consumer: Any, assignor: Any) -> None:
        self._consumer, self._assignor = consumer, assignor
        self.changes: asyncio.Queue[frozenset[int]] = asyncio.Queue()

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Nothing to do: the next assignment shows what has changed, and claims keep that safe."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._consumer.pause(*assigned)
        # aiokafka does not do this: a member that was suspended would ask for its old partitions
        self._assignor.on_generation_assignment(self._consumer._coordinator.generation)
        self.changes.put_nowait(frozenset(partition.partition for partition in assigned))


@asynccontextmanager
async def membership(
    options: Mapping[str, Any], group: str, topic: str, session_timeout_ms: Ms
) -> AsyncIterator[AsyncIterator[frozenset[int]]]:
    """See `Log.membership`. Raises Unavailable.

    Sticky: a member that stays keeps its partitions; a new owner would replay their journals.
    aiokafka keeps a member's assignment in the assignor's class, so each membership has its own.
    """
    assignor = type("Sticky", (StickyPartitionAssignor,), {})
    consumer = AIOKafkaConsumer(
        **options,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=max(100, session_timeout_ms // HEARTBEATS_PER_SESSION),
        rebalance_timeout_ms=session_timeout_ms,
        max_poll_interval_ms=NEVER_MS,
        partition_assignment_strategy=(assignor,),
    )
    listener = _Listener(consumer, assignor)
    consumer.subscribe([topic], listener=listener)
    await _start_consumer(consumer, options["bootstrap_servers"])
    try:
        yield _changes(consumer, listener.changes)
    finally:
        await _stop_consumer(consumer)


async def _changes(
    consumer: Any, queue: asyncio.Queue[frozenset[int]]
) -> AsyncIterator[frozenset[int]]:
    """Raises Unavailable when the client has given up on its group."""
    while True:
        beat("waiting")
        try:
            async with asyncio.timeout(CHECK_MS / 1_000):
                change = await queue.get()
        except TimeoutError:
            try:
                consumer._coordinator.check_errors()
            except (KafkaError, OSError) as error:
                raise Unavailable(repr(error)) from error
        else:
            yield change
