"""Which service may use what besides the log: the table of least privilege. Pure.

Rights on topics follow from `topics`, those to send commands from `senders`. Roles of the database
and the page of the reference are made of this table.
"""

from typing import Final, NamedTuple

from schemas.topics import SERVICES


class Access(NamedTuple):
    """What one service may use.

    rows: whether it keeps rows in PostgreSQL, in the schema of its name. Others have no account.
    """

    rows: bool


ACCESS: Final = {
    "billing": Access(rows=True),
    "engine": Access(rows=False),
    "eval": Access(rows=True),
    "exporter": Access(rows=False),
    "gateway": Access(rows=True),
    "ingest": Access(rows=True),
    "notifier": Access(rows=True),
    "registry": Access(rows=True),
    "scheduler": Access(rows=True),
    "trainer": Access(rows=False),
}
KEEPS_ROWS: Final = tuple(service for service in SERVICES if ACCESS[service].rows)


def keeps_rows(service: str) -> bool:
    """Whether a process of this name has a schema; one that is no service of ours does."""
    return service not in ACCESS or ACCESS[service].rows
