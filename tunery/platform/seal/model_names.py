"""Names of fine-tuned models, `ft:BASE:TENANT:SUFFIX:ID`: sealed on the log, shown to their tenant.

A name is an identifier, so it is on the log, which is kept for ever; SUFFIX is text of the tenant.
There it is `~` and a sealed word, which nobody reads once the tenant's key is destroyed. Names of
before have their suffix in the clear on the log, too, and stay as they are.
"""

import re
from typing import Final, TypeVar

import msgspec

from schemas.ids import MODEL
from tunery.platform.seal.sealer import Sealer

SEALED: Final = "~"  # no suffix begins with it
TENANT, SUFFIX, PARTS_MIN = 2, 3, 5  # of a name: the last part is an id, a stage or a step
Document = TypeVar("Document")
NAMED: Final = re.compile(rb":([a-z0-9][a-z0-9-]{0,62}):~([a-z2-7]+)")


def sealed_suffix(seal: Sealer, tenant: str, suffix: str) -> str:
    """The suffix as names on the log have it. Raises KeyDestroyed."""
    return f"{SEALED}{seal.seal_word(tenant, suffix)}" if suffix else ""


def logged_name(seal: Sealer, tenant: str, name: str) -> str:
    """A name of the tenant's as the log has it; any other text as it is. Raises KeyDestroyed."""
    parts = name.split(":")
    if not name.startswith(MODEL) or len(parts) < PARTS_MIN or parts[TENANT] != tenant:
        return name
    if not parts[SUFFIX].startswith(SEALED):
        parts[SUFFIX] = sealed_suffix(seal, tenant, parts[SUFFIX])
    return ":".join(parts)


def shown_names(seal: Sealer, tenant: str | None, text: bytes) -> bytes:
    """A text in which the suffix of the tenant's names can be read; None: of all tenants' names.

    A name stays as it is where its key is gone. Suffixes need no quotes in JSON, HTML or a URL.
    """
    if b":~" not in text:
        return text

    def shown(name: re.Match[bytes]) -> bytes:
        owner, sealed = (part.decode("ascii") for part in name.groups())
        suffix = seal.open_word(owner, sealed) if tenant in (owner, None) else None
        return name[0] if suffix is None else f":{owner}:{suffix}".encode()

    return NAMED.sub(shown, text)


def with_shown_names(seal: Sealer, tenant: str, document: Document) -> Document:
    """A JSON document, or a struct that can be one, with the tenant's names as it sees them."""
    text = shown_names(seal, tenant, msgspec.json.encode(document))
    return msgspec.json.decode(text, type=type(document))
