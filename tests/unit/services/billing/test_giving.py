"""Keys of a lease: those that the pool lists for it, and none of another tenant."""

from base64 import b64decode

import pytest
from msgspec.structs import replace

from schemas.lease_keys import (
    LeaseHolder,
    LeaseKeysRequested,
    LeaseKeysSealed,
    LeaseNeeds,
    NeededText,
    RecordLeaseKeys,
)
from schemas.pool import AttemptEnd, PlacementClosed
from schemas.reasons import ending
from schemas.sealed import REDACTED
from services.billing.giving import GIVE, GiveKeys, give_keys, keys_of, project_lease_keys
from tests.unit.services.scheduler.fold import header_of
from tests.unit.services.trainer.domain.test_evolve import kept
from tunery.platform.blobs.encrypted import EncryptedBlobs
from tunery.platform.blobs.path_keys import LeasePathKeys, TenantPathKeys
from tunery.platform.seal.abstract import KeyStoreBroken, RootRefused, RootUnavailable, SealBroken
from tunery.platform.seal.boxes import open_box, public_key_of
from tunery.platform.seal.handed import HandedKeys, LeaseSealer, decode_keys, hand_paths
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.sealer import Sealer
from tunery.runtime.blobs.abstract import BlobMissing
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.verbs import Done, Todo

pytestmark = pytest.mark.security

PRIVATE = bytes(range(32))
HOLDER = LeaseHolder(
    lease=7, tenant="acme", job_id="job1", attempt=2, node_id="a", incarnation="a1"
)
REQUEST = LeaseKeysRequested(
    holder=HOLDER,
    public_key=public_key_of(PRIVATE).hex(),
    needs=LeaseNeeds(),
)
DUE = GiveKeys(pool="default", request=REQUEST)


async def keys_given(seal: Sealer, due: GiveKeys = DUE, private: bytes = PRIVATE) -> HandedKeys:
    """Run the effect, and open its answer with this private key."""
    send = await give_keys(seal).run(due, "acme")
    assert send is not None
    assert (send.stream, send.key, send.tenant) == ("pool", "default", "acme")
    assert isinstance(send.body, RecordLeaseKeys)
    assert (send.body.lease, send.body.incarnation) == (7, "a1")
    return decode_keys(open_box(private, b64decode(send.body.sealed_keys)))


def test_a_row_waits_until_keys_are_sealed_or_the_placement_has_ended() -> None:
    header = header_of("pool", "default", 1)
    row = "job1/2/a"
    assert project_lease_keys(header, REQUEST) == (Todo(GIVE, row, "default", "acme", DUE),)
    answered = LeaseKeysSealed(holder=HOLDER, sealed_keys="s")
    assert project_lease_keys(header, answered) == (Done(GIVE, row),)
    end = AttemptEnd(outcome="lost", ended_by="node", reason=ending("node_lost"), node_ids=("a",))
    closed = PlacementClosed(tenant="acme", job_id="job1", attempt=2, role="train", end=end)
    assert project_lease_keys(header, closed) == (Done(GIVE, row),)
    assert project_lease_keys(header, kept(1)) == ()


async def test_only_the_requesting_agent_can_open_the_answer() -> None:
    seal = Sealer(MemoryKeyStore())
    assert (await keys_given(seal)).seal_id.endswith("/job1/2")
    with pytest.raises(SealBroken):
        await keys_given(seal, private=bytes(32))


async def test_security_m3_a_lease_of_one_tenant_opens_no_text_and_no_blob_of_another() -> None:
    store, storage = MemoryKeyStore(), MemoryBlobs()
    services = EncryptedBlobs(storage, TenantPathKeys(store))
    seal = Sealer(store)
    for tenant in ("acme", "other"):
        await services.put(f"t/{tenant}/prepared/rows", b"rows")
        await services.put(f"t/{tenant}/files/f", b"uploaded")
    own, foreign = seal.seal("acme", "grade", "grader"), seal.seal("other", "x", "grader")
    needs = LeaseNeeds(
        reads=("t/acme/prepared/rows", "t/other/prepared/rows"),
        writes=("t/acme/adapters/job1/2/", "t/other/adapters/job1/2/"),
        texts=(
            NeededText(field="grader", sealed=own),
            NeededText(field="grader", sealed=foreign),
        ),
    )
    keys = await keys_given(seal, replace(DUE, request=replace(REQUEST, needs=needs)))
    assert {handed.path.split("/")[1] for handed in keys.paths} == {"acme"}
    sealer, paths = LeaseSealer("acme"), LeasePathKeys()
    sealer.take(keys)
    hand_paths(keys, paths)
    lease = EncryptedBlobs(storage, paths)
    assert await lease.get("t/acme/prepared/rows") == b"rows"
    assert sealer.open(own, "grader") == "grade"
    for path in ("t/other/prepared/rows", "t/acme/files/f"):
        with pytest.raises(KeyStoreBroken, match=path):
            await lease.get(path)
    with pytest.raises(KeyStoreBroken):
        sealer.open(foreign, "grader")
    for path in ("t/other/adapters/job1/2/a", "t/acme/adapters/job1/3/a"):
        with pytest.raises(KeyStoreBroken, match="may be written"):
            await lease.put(path, b"x")
    await lease.put("t/acme/adapters/job1/2/ab/a", b"adapter")
    assert await services.get("t/acme/adapters/job1/2/ab/a") == b"adapter"
    detail = sealer.seal("acme", "it failed", "detail")
    assert seal.open(detail, "detail") == "it failed"
    store.destroy("acme")
    assert seal.open(detail, "detail") == REDACTED
    with pytest.raises(BlobMissing):
        await services.get("t/acme/adapters/job1/2/ab/a")


async def test_after_an_erasure_a_lease_gets_a_reason_and_no_keys() -> None:
    store = MemoryKeyStore()
    Sealer(store).seal("acme", "x", "name")
    store.destroy("acme")
    keys = await keys_given(Sealer(store))
    assert (keys.paths, keys.texts, keys.seal_secret) == ((), (), b"")
    assert "erased" in keys.problem


class FaultyStore(MemoryKeyStore):
    """Key store whose reads fail with this error."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def get(self, tenant: str) -> None:
        raise self.error


async def test_an_unavailable_root_key_is_retried_and_a_refusing_one_is_reported() -> None:
    with pytest.raises(RootUnavailable):
        keys_of(Sealer(FaultyStore(RootUnavailable("away"))), REQUEST)
    assert keys_of(Sealer(FaultyStore(RootRefused("withdrawn"))), REQUEST).problem == "withdrawn"
    exhausted = give_keys(Sealer(MemoryKeyStore())).exhausted
    assert exhausted is not None
    send = exhausted(DUE, "acme", "not a key file")
    assert isinstance(send.body, RecordLeaseKeys)
    keys = decode_keys(open_box(PRIVATE, b64decode(send.body.sealed_keys)))
    assert keys.problem == "not a key file"
