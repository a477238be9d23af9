"""The catalogue of topics: names, owners, retention."""

import pytest

from schemas.streams import FOREVER, Stream
from schemas.topics import STREAMS, TOPICS


def test_every_topic_has_a_name_of_its_own_with_its_version() -> None:
    names = [topic.name for topic in TOPICS]
    assert len(set(names)) == len(names) == 2 * len(STREAMS) + 11
    assert all(name.startswith("tunery.") and name.endswith(".v1") for name in names)


@pytest.mark.parametrize("stream", STREAMS.values(), ids=list(STREAMS))
def test_commands_are_read_and_journals_written_by_the_owner_alone(stream: Stream) -> None:
    assert stream.commands.readers == (stream.owner,)
    assert stream.journal.writers == (stream.owner,)
    assert stream.owner in stream.journal.readers
    assert stream.commands.key == stream.journal.key == stream.key


def test_journals_are_kept_for_ever_and_only_commands_are_trimmed() -> None:
    for stream in STREAMS.values():
        assert (stream.journal.retention_ms, stream.journal.trimmed) == (FOREVER, False)
        assert (stream.commands.retention_ms, stream.commands.trimmed) == (FOREVER, True)
        assert stream.journal.durable
        assert not stream.journal.compacted


def test_only_topics_that_are_not_durable_delete_records_by_age() -> None:
    assert all(topic.retention_ms > 0 for topic in TOPICS if not topic.durable)
