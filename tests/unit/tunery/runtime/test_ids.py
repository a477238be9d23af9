"""Fresh ids are random UUIDs in canonical form."""

from uuid import UUID

from tunery.runtime.ids import new_id


def test_fresh_ids_differ() -> None:
    assert len({new_id() for _ in range(1_000)}) == 1_000


def test_a_fresh_id_is_a_canonical_random_uuid() -> None:
    fresh = new_id()
    assert str(UUID(fresh)) == fresh
    assert UUID(fresh).version == 4
