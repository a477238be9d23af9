"""Keys in memory: made at the first use, and never again once they were destroyed."""

from tunery.platform.seal.abstract import KEY_BYTES
from tunery.platform.seal.memory import MemoryKeyStore, random_bytes


def test_a_key_is_created_once() -> None:
    keys = MemoryKeyStore()
    assert keys.find("acme") is None
    created = keys.get("acme")
    assert created is not None
    assert len(created.current.secret) == KEY_BYTES
    assert keys.get("acme") == keys.find("acme") == created


def test_a_destroyed_key_is_never_made_again() -> None:
    keys = MemoryKeyStore()
    keys.get("acme")
    keys.destroy("acme")
    keys.destroy("never-used")
    assert [keys.get("acme"), keys.find("acme"), keys.get("never-used")] == [None] * 3


def test_keys_of_tenants_differ_and_follow_from_the_drawn_bytes() -> None:
    fixed = MemoryKeyStore(lambda count: b"x" * count)
    acme, beta = fixed.get("acme"), fixed.get("beta")
    assert acme is not None
    assert beta is not None
    assert acme.current.key_id == "acme.78787878"
    assert acme.current.key_id != beta.current.key_id
    assert len(random_bytes(7)) == 7
