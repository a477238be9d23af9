"""Gives the agent of a lease the keys that its work needs, and no others.

Billing owns accounts, and so the keys of tenants. What a lease needs the pool has decided; what is
not of the tenant of the lease is left out whatever the pool says.
"""

import asyncio
import os
from base64 import b64encode
from typing import Final

from schemas.envelope import Header, Message
from schemas.lease_keys import LeaseHolder, LeaseKeysRequested, LeaseKeysSealed, RecordLeaseKeys
from schemas.pool import PlacementClosed
from tunery.platform.seal.abstract import KeyDestroyed, RootRefused
from tunery.platform.seal.boxes import KEY_BYTES, seal_to
from tunery.platform.seal.handed import HandedKeys, HandedPath, HandedText, encode_keys
from tunery.platform.seal.sealer import Sealer
from tunery.runtime.verbs import Change, Done, Effect, Send, Todo

GIVE: Final = "lease_keys"
AT_ONCE_MAX: Final = 8
OF_TENANT_MAX: Final = 2  # a root key of a tenant may take seconds to answer


class GiveKeys(Message):
    """A lease waits for its keys."""

    pool: str  # pool of the lease
    request: LeaseKeysRequested


def project_lease_keys(
    header: Header, event: LeaseKeysRequested | LeaseKeysSealed | PlacementClosed | Message
) -> tuple[Change, ...]:
    """To-dos: leases that wait for keys, until they have them or have ended."""
    match event:
        case LeaseKeysRequested():
            due, holder = GiveKeys(pool=header.key, request=event), event.holder
            return (Todo(GIVE, _row_of(holder), header.key, holder.tenant, due),)
        case LeaseKeysSealed():
            return (Done(GIVE, _row_of(event.holder)),)
        case PlacementClosed():
            nodes = event.end.node_ids
            return tuple(Done(GIVE, _row(event.job_id, event.attempt, node)) for node in nodes)
        case _:
            return ()


def _row_of(holder: LeaseHolder) -> str:
    return _row(holder.job_id, holder.attempt, holder.node_id)


def _row(job_id: str, attempt: int, node_id: str) -> str:
    return f"{job_id}/{attempt}/{node_id}"


def give_keys(seal: Sealer) -> Effect[GiveKeys]:
    """The effect that answers an agent. While a key cannot be had it is tried again."""

    async def run(due: GiveKeys, _: str, __: int = 1) -> Send:
        keys = await asyncio.to_thread(keys_of, seal, due.request)
        return _answer(due, keys)

    def exhausted(due: GiveKeys, _: str, failure: str) -> Send:
        return _answer(due, HandedKeys(problem=failure))

    return Effect(
        kind=GIVE,
        body=GiveKeys,
        run=run,
        exhausted=exhausted,
        concurrency=AT_ONCE_MAX,
        of_tenant_max=OF_TENANT_MAX,
    )


def keys_of(seal: Sealer, request: LeaseKeysRequested) -> HandedKeys:
    """Return the keys for a lease; none if the keys of its tenant were closed.

    Raises KeyUnavailable, KeyStoreBroken.
    """
    holder, needs = request.holder, request.needs
    tenant = holder.tenant
    root = f"t/{tenant}/"
    try:
        own = seal.scoped_key(tenant, f"{holder.job_id}/{holder.attempt}")
        reads = tuple(
            HandedPath(path, key.version, key.secret)
            for path in needs.reads
            if path.startswith(root)
            for key in seal.path_keys(tenant, path)
        )
        writes = tuple(
            HandedPath(folder, *seal.folder_key(tenant, folder), writes=True)
            for folder in needs.writes
            if folder.startswith(root)
        )
        texts = tuple(
            HandedText(text.sealed.key_id, text.sealed.nonce, seal.open(text.sealed, text.field))
            for text in needs.texts
            if text.sealed.key_id.rpartition(".")[0] == tenant
        )
    except (KeyDestroyed, RootRefused) as error:
        return HandedKeys(problem=str(error))
    return HandedKeys(texts, (*reads, *writes), own.key_id, own.secret)


def _answer(due: GiveKeys, keys: HandedKeys) -> Send:
    request, holder = due.request, due.request.holder
    box = seal_to(bytes.fromhex(request.public_key), encode_keys(keys), os.urandom(KEY_BYTES))
    record = RecordLeaseKeys(
        lease=holder.lease,
        incarnation=holder.incarnation,
        public_key=request.public_key,
        sealed_keys=b64encode(box).decode(),
    )
    return Send("pool", due.pool, holder.tenant, record)
