"""Identifiers: how they look and how the deterministic ones are derived."""

from typing import Final
from uuid import UUID, uuid5

from schemas.envelope import Source

NAMESPACE: Final = UUID("6f1f0c6e-5a0e-4b6e-9a3c-7d6d2f0f7a11")

# Prefixes are OpenAI's where OpenAI has one (research: the SDKs never check them, people do).
(
    FILE,
    UPLOAD,
    PART,
    JOB,
    EVENT,
    CHECKPOINT,
    PERMISSION,
    KEY,
    ENDPOINT,
    DELIVERY,
    SWEEP,
    SERVING_POOL,
    MODEL,
    SESSION,
    BATCH,
    IMPORT,
) = (
    "file-",
    "upload_",
    "part_",
    "ftjob-",
    "ftevent-",
    "ftckpt_",
    "cp_",
    "key_",
    "we_",
    "whd_",
    "sweep-",
    "spool-",
    "ft:",
    "session-",
    "batch_",
    "import_",
)


def event_id(command_id: str, index: int) -> str:
    """Id of the index-th event that a command led to."""
    return str(uuid5(UUID(command_id), str(index)))


def reaction_id(source: Source) -> str:
    """Id of a command that a reaction sends: the same source always gives the same id."""
    record = f"{source.stream}/{source.partition}/{source.incarnation}/{source.offset}"
    return str(uuid5(NAMESPACE, f"{record}/{source.index}"))


def derived_id(*parts: str) -> str:
    """Id of a thing that follows from others (a delivery from its event and endpoint, say)."""
    return uuid5(NAMESPACE, "/".join(parts)).hex[:24]
