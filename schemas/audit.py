"""Audit records of HTTP requests: who did what, from where, with which result.

Records hold identifiers and no text of a tenant, so nothing in them is sealed and the erasure of a
tenant leaves them whole. Each has the hash of its writer's previous record.
"""

from typing import Literal, TypeAlias

from schemas.envelope import Message, Part, Sha256
from schemas.units import Ms

AuditKind: TypeAlias = Literal["refusal", "operator", "content", "change", "use"]


class AuditEntry(Part):
    """One request, or several equal ones within a minute or ten."""

    at: Ms  # time of the last of them
    # a refusal (401, 403), a use of an operator's right, a reading of a tenant's content, a change,
    # or the use of a key
    kind: AuditKind
    tenant: str  # tenant that owns the object; empty: no known tenant
    # actor_tenant, key_id: whose key was sent, and which; empty: none that is known
    actor_tenant: str
    key_id: str
    address: str  # client address as the trusted proxies give it
    # method, route: verb, and path as a template; empty for the use of a key. Of a command that was
    # refused because of its sender: `command`, and the stream.
    method: str = ""
    route: str = ""
    # identifiers in the path, the most special last. `[name]`: not an identifier.
    object_ids: tuple[str, ...] = ()
    # status, code: status of the answer, and code of its error
    status: int = 0
    code: str | None = None
    request_id: str = ""
    times: int = 1  # number of them


class AuditRecorded(Message):
    """Entries of one process, in the order in which they were noted."""

    writer: str  # the process, as long as it runs
    number: int  # number of this record, from 0
    # SHA-256 of the writer's previous record; in its first record, of one of the newest records on
    # the log then, or zeros where the log was empty
    previous: Sha256
    entries: tuple[AuditEntry, ...]
    lost: int = 0  # entries that this process had no room for since the record before
