"""Consumer groups used only to assign partitions to processes; records are read elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import InvalidSessionTimeoutError, KafkaError

from schemas.units import Ms
from tunery.platform.bus.broker_settings import SESSION_VARIABLE
from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.watchdog import beat

REBALANCE_DELAY_MS: Final = 3_000  # Kafka's group.initial.rebalance.delay.ms
CONNECT_MS_MAX: Final = 5_000
NEVER_MS: Final = 2_147_483_647  # an assignment-only member does not poll
CLOSE_MS_MAX: Final = 2_000
HEARTBEATS_PER_SESSION: Final = 10  # a member learns at its next one that another has left
GENERATION_BYTES: Final = 4  # an int32 of Kafka's protocol
CHECK_MS: Final = 2_000  # how often a membership looks for errors of its client


def join_ms_max(session_timeout_ms: Ms) -> Ms:
    """How long a member may wait for its first assignment.

    A new group waits for more members; an old one for those that were killed, a session long.
    """
    return session_timeout_ms + REBALANCE_DELAY_MS + CONNECT_MS_MAX


def sessions_refused(bootstrap: object, session_timeout_ms: Ms) -> Unavailable:
    """Return the error for brokers that refuse sessions of this length."""
    return Unavailable(
        f"Kafka at {bootstrap} refuses sessions of {session_timeout_ms} ms: set "
        f"{SESSION_VARIABLE} to a value from its group.min.session.timeout.ms (6000 unless "
        "set) to its group.max.session.timeout.ms"
    )


async def _start_consumer(consumer: Any, bootstrap: object, session_timeout_ms: Ms) -> Any:
    """Raises Unavailable."""
    try:
        async with asyncio.timeout(join_ms_max(session_timeout_ms) / 1_000):
            await consumer.start()
    except InvalidSessionTimeoutError as error:
        await _stop_consumer(consumer)
        raise sessions_refused(bootstrap, session_timeout_ms) from error
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

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self.changes: asyncio.Queue[frozenset[int]] = asyncio.Queue()

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Do nothing: the next assignment shows what has changed, and claims keep that safe."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        self._consumer.pause(*assigned)
        self.changes.put_nowait(frozenset(partition.partition for partition in assigned))


class _StickyAssignor(StickyPartitionAssignor):  # type: ignore[misc]  # aiokafka has no types
    """Keeps partitions where they are, and counts assignments.

    aiokafka never sets the generation of an assignment, by which its assignor prefers the newer of
    two members that name the same partition: a member that was suspended would get back its old
    ones. The number travels with the assignment, as bytes that other assignors ignore.
    """

    @classmethod
    def assign(cls, cluster: Any, members: Mapping[str, Any]) -> Any:
        assignments = super().assign(cluster, members)
        latest = max(cls.parse_member_metadata(member).generation for member in members.values())
        for assignment in assignments.values():
            assignment.user_data = (max(latest, 0) + 1).to_bytes(GENERATION_BYTES)
        return assignments

    @classmethod
    def on_assignment(cls, assignment: Any) -> None:
        super().on_assignment(assignment)
        cls.on_generation_assignment(int.from_bytes(assignment.user_data))


@asynccontextmanager
async def membership(
    options: Mapping[str, Any], group: str, topic: str, session_timeout_ms: Ms
) -> AsyncIterator[AsyncIterator[frozenset[int]]]:
    """See `Log.membership`. Raises Unavailable.

    Sticky: a member that stays keeps its partitions; a new owner would replay their journals.
    aiokafka keeps a member's assignment in the assignor's class, so each membership has its own.
    """
    assignor = type("Sticky", (_StickyAssignor,), {})
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
    listener = _Listener(consumer)
    consumer.subscribe([topic], listener=listener)
    await _start_consumer(consumer, options["bootstrap_servers"], session_timeout_ms)
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
                async with asyncio.timeout(CHECK_MS / 1_000):
                    await consumer.getmany()  # nothing: it raises what the group's client met
            except TimeoutError:
                continue  # the group is being assigned
            except (KafkaError, OSError) as error:
                raise Unavailable(repr(error)) from error
        else:
            yield change
