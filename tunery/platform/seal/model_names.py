"""Names of fine-tuned models, `ft:BASE:TENANT:SUFFIX:ID`: sealed on the log, shown to their tenant.

Names are identifiers, so they are on the log, which is kept for ever; but SUFFIX is the tenant's
text. On the log it is `~` and a sealed word, which cannot be read once the tenant's key is
destroyed. Names from before that have a plain suffix on the log, and stay as they are.
"""

import re
from typing import Final, TypeVar

import msgspec

from schemas.ids import MODEL
from tunery.platform.seal.sealer import Sealer

SEALED: Final = "~"  # no suffix begins with it
TENANT, SUFFIX, PARTS_MIN = 2, 3, 5  # parts of a name; the last part is an id, a stage or a step
Document = TypeVar("Document")
NAMED: Final = re.compile(rb":([a-z0-9][a-z0-9-]{0,62}):~([a-z2-7]+)")


def sealed_suffix(seal: Sealer, tenant: str, suffix: str) -> str:
    """Seal a suffix for names on the log. Raises KeyDestroyed."""
    return f"{SEALED}{seal.seal_word(tenant, suffix)}" if suffix else ""


def logged_name(seal: Sealer, tenant: str, name: str) -> str:
    """Seal the suffix of a tenant's name; other text is unchanged. Raises KeyDestroyed."""
    parts = name.split(":")
    if not name.startswith(MODEL) or len(parts) < PARTS_MIN or parts[TENANT] != tenant:
        return name
    if not parts[SUFFIX].startswith(SEALED):
        parts[SUFFIX] = sealed_suffix(seal, tenant, parts[SUFFIX])
    return ":".join(parts)


def shown_names(seal: Sealer, tenant: str | None, text: bytes) -> bytes:
    """Open the suffixes of the names in a text. tenant: whose names; None: all tenants'.

    A name whose key is destroyed stays sealed. Suffixes need no escapes in JSON, HTML or a URL.
    """
    if b":~" not in text:
        return text

    def shown(name: re.Match[bytes]) -> bytes:
        owner, sealed = (part.decode("ascii") for part in name.groups())
        suffix = seal.open_word(owner, sealed) if tenant in (owner, None) else None
        return name[0] if suffix is None else f":{owner}:{suffix}".encode()

    return NAMED.sub(shown, text)


def with_shown_names(seal: Sealer, tenant: str, document: Document) -> Document:
    """Open the suffixes of the tenant's names in a JSON document or a struct."""
    text = shown_names(seal, tenant, msgspec.json.encode(document))
    return msgspec.json.decode(text, type=type(document))
