"""Archives old records of the journals of an installation."""

from collections.abc import Sequence

from schemas.streams import PARTITIONS
from schemas.topics import STREAMS
from schemas.units import Ms
from tunery.local.errors import LocalError
from tunery.runtime.blobs.abstract import BlobError
from tunery.runtime.tools.archived_log import ArchivedLog
from tunery.runtime.tools.archiving import ArchiveReport, NotArchived, archive


async def archive_all(
    log: ArchivedLog, streams: Sequence[str], before_ms: Ms, *, dry_run: bool
) -> list[ArchiveReport]:
    """Archive what is older in each partition of the streams. Raises LocalError, BusError."""
    try:
        return [
            await archive(log, STREAMS[name], partition, before_ms, dry_run=dry_run)
            for name in streams
            for partition in range(PARTITIONS)
        ]
    except NotArchived as error:
        raise LocalError(
            f"{error}; nothing more of it is archived", "see `tunery journal verify`"
        ) from error
    except BlobError as error:
        raise LocalError(
            f"the archive cannot be written: {error}",
            "see that its bucket exists, and that this account may write there",
        ) from error
