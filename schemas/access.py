"""Which service may use what besides the log: the table of least privilege. Pure.

Rights on topics follow from `topics`, those to send commands from `senders`. Roles of the database,
policies of object storage and the page of the reference are made of these tables.
"""

from typing import Final, NamedTuple

from schemas.topics import SERVICES


class ServiceAccess(NamedTuple):
    """Permissions of one service: database schema, key store, data keys and reports."""

    # whether it keeps rows in PostgreSQL, in the schema of its name. Others have no account.
    rows: bool
    keys: bool  # whether it opens or seals texts of tenants. Others are not given the key store.
    makes_keys: bool = False  # whether it makes the data key of a tenant that has none
    # whether people may read views of its rows, with a role that may do nothing else
    reports: bool = False
    # version of its rows, where each has a schema of its own (`tunery.platform.store.generations`);
    # None: a new version replaces the tables in the one schema
    version: int | None = None


#: Raise it with every change of the read models' tables, or of what fills them.
VIEWS_VERSION: Final = 71  # 71: tokens of sessions, kept; 70: erased sessions


ACCESS: Final = {
    "billing": ServiceAccess(rows=True, keys=True, reports=True),
    "engine": ServiceAccess(rows=False, keys=False),
    "eval": ServiceAccess(rows=True, keys=True),
    "exporter": ServiceAccess(rows=False, keys=False),
    "gateway": ServiceAccess(
        rows=True, keys=True, makes_keys=True, reports=True, version=VIEWS_VERSION
    ),
    "ingest": ServiceAccess(rows=True, keys=True),
    "notifier": ServiceAccess(rows=True, keys=True),
    "registry": ServiceAccess(rows=True, keys=True),
    "scheduler": ServiceAccess(rows=True, keys=False),
    "trainer": ServiceAccess(rows=False, keys=False),
    "watcher": ServiceAccess(rows=False, keys=False),
}
#: Processes that use the accounts and the schema of a service, and open no texts.
BESIDE: Final = {"views": "gateway"}
KEEPS_ROWS: Final = tuple(service for service in SERVICES if ACCESS[service].rows)
REPORTS: Final = tuple(service for service in KEEPS_ROWS if ACCESS[service].reports)
READER: Final = "reports"  # who reads these views: a dashboard, an accountant


def keeps_rows(service: str) -> bool:
    """Return whether a service has a PostgreSQL schema (True for names that are no service)."""
    return service not in ACCESS or ACCESS[service].rows


def schema_of(service: str) -> str:
    """Return the schema with the rows of a service, as this release has them."""
    owner = BESIDE.get(service, service)
    version = ACCESS[owner].version if owner in ACCESS else None
    return owner if version is None else f"{owner}_v{version}"


def opens_keys(service: str) -> bool:
    """Return whether a service gets the key store (True for names that are no service)."""
    return service not in BESIDE and (service not in ACCESS or ACCESS[service].keys)


def makes_keys(service: str) -> bool:
    """Return whether a service may create data keys (True for names that are no service)."""
    return service not in ACCESS or ACCESS[service].makes_keys


class ObjectAccess(NamedTuple):
    """Services that may read, write and delete objects whose keys begin with `prefix`."""

    prefix: str  # beginning of the object keys; `*` stands for any tenant
    # reads, writes, deletes: names of services. `trainer` is every node.
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    deletes: frozenset[str] = frozenset()


def _access(prefix: str, reads: str = "", writes: str = "", deletes: str = "") -> ObjectAccess:
    """Names are separated by spaces."""
    return ObjectAccess(prefix, *(frozenset(names.split()) for names in (reads, writes, deletes)))


#: What is not listed is forbidden. Which keys there are everybody may see: storage answers who may
#: not with "forbidden" where an object is missing.
OBJECTS: Final = (
    _access("t/", deletes="ingest"),  # erasure of tenants, and of what is not needed any more
    _access("t/*/files/", "gateway ingest", "gateway", "gateway"),
    _access("t/*/uploads/", "gateway", "gateway", "gateway"),
    _access("t/*/reports/", "gateway", "ingest"),
    _access("t/*/prepared/", "trainer", "ingest"),
    _access("t/*/imports/", "registry trainer", "gateway", "gateway registry"),
    _access("t/*/checkpoints/", "engine gateway trainer", "trainer", "registry"),
    _access("t/*/adapters/", "registry trainer", "trainer", "registry"),
    _access("t/*/scores/", "eval gateway trainer", "trainer", "registry"),
    _access("t/*/results/", "gateway", "gateway"),
    _access("t/*/models/", "engine gateway registry trainer", "registry", "registry"),
    _access("t/*/sessions/", "gateway trainer", "gateway trainer"),
    _access("t/*/exports/", "", "exporter"),
    _access("benchmarks/", "trainer", "gateway"),
    _access("exports/", "exporter", "exporter"),
    _access("snapshots/account/", "billing", "billing", "billing"),
    _access("snapshots/dataset/", "ingest", "ingest", "ingest"),
    _access("snapshots/job/", "scheduler", "scheduler", "scheduler"),
    _access("snapshots/model/", "registry", "registry", "registry"),
    _access("snapshots/pool/", "scheduler", "scheduler", "scheduler"),
    _access("snapshots/session/", "scheduler trainer", "scheduler", "scheduler"),
)
