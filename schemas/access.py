"""Which service may use what besides the log: the table of least privilege. Pure.

Rights on topics follow from `topics`, those to send commands from `senders`. Roles of the database
and the page of the reference are made of this table.
"""

from typing import Final, NamedTuple

from schemas.topics import SERVICES


class ServiceAccess(NamedTuple):
    """What one service may use.

    rows: whether it keeps rows in PostgreSQL, in the schema of its name. Others have no account.
    keys: whether it opens or seals texts of tenants. Others are not given the key store.
    reports: whether people may read views of its rows, with a role that may do nothing else.
    """

    rows: bool
    keys: bool
    reports: bool = False


ACCESS: Final = {
    "billing": ServiceAccess(rows=True, keys=True, reports=True),
    "engine": ServiceAccess(rows=False, keys=False),
    "eval": ServiceAccess(rows=True, keys=True),
    "exporter": ServiceAccess(rows=False, keys=False),
    "gateway": ServiceAccess(rows=True, keys=True, reports=True),
    "ingest": ServiceAccess(rows=True, keys=True),
    "notifier": ServiceAccess(rows=True, keys=True),
    "registry": ServiceAccess(rows=True, keys=True),
    "scheduler": ServiceAccess(rows=True, keys=False),
    "trainer": ServiceAccess(rows=False, keys=True),
    "watcher": ServiceAccess(rows=False, keys=False),
}
KEEPS_ROWS: Final = tuple(service for service in SERVICES if ACCESS[service].rows)
REPORTS: Final = tuple(service for service in KEEPS_ROWS if ACCESS[service].reports)
READER: Final = "reports"  # who reads these views: a dashboard, an accountant


def keeps_rows(service: str) -> bool:
    """Whether a process of this name has a schema; one that is no service of ours does."""
    return service not in ACCESS or ACCESS[service].rows


def opens_keys(service: str) -> bool:
    """Whether a process of this name is given the key store; one that is no service of ours is."""
    return service not in ACCESS or ACCESS[service].keys
