"""Who did what over HTTP, from where and with which result: the topic of audit records.

Records hold identifiers and no text of a tenant, so nothing of them is sealed and the erasure of a
tenant leaves them whole. Each names the hash of the record before it, of the same writer.
"""

from typing import Literal, TypeAlias

from schemas.envelope import Message, Part, Sha256
from schemas.units import Ms

AuditKind: TypeAlias = Literal["refusal", "operator", "content", "change", "use"]


class AuditEntry(Part):
    """One request, or several equal ones within a minute or ten.

    at: of the last of them. times: how many they are.
    kind: a refusal (401, 403), a use of an operator's right, a reading of a tenant's content, a
      change, or the use of a key.
    tenant: whose things it was about; empty: of nobody who is known.
    actor_tenant, key_id: whose key was sent, and which; empty: none that is known.
    address: of the client, as the trusted proxies give it.
    method, route: verb, and path as a template; empty for the use of a key. Of a command that was
      refused because of its sender: `command`, and the stream.
    object_ids: of what the path names, the most special last. `[name]`: not an identifier.
    status, code: of the answer; code: of an error.
    """

    at: Ms
    kind: AuditKind
    tenant: str
    actor_tenant: str
    key_id: str
    address: str
    method: str = ""
    route: str = ""
    object_ids: tuple[str, ...] = ()
    status: int = 0
    code: str | None = None
    request_id: str = ""
    times: int = 1


class AuditRecorded(Message):
    """Entries of one process, in the order in which they were noted.

    writer: the process, as long as it runs. number: of this record, from 0.
    previous: SHA-256 of the bytes of the writer's record before; of its first record: of one that
      the log ended with shortly before, zeros where it was empty.
    lost: entries that this process had no room for since the record before.
    """

    writer: str
    number: int
    previous: Sha256
    entries: tuple[AuditEntry, ...]
    lost: int = 0
