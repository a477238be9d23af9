"""The page of who may use what, made from the tables: `python -m tests.repo.access`."""

from pathlib import Path
from typing import Final

from schemas.access import ACCESS, OBJECTS, READER, REPORTS, ObjectAccess, schema_of
from tunery.platform.store.reports import reports_of
from tunery.platform.store.roles import role_of

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "access.md"
HEAD: Final = """\
# Access of services

Made from `schemas/access.py` by `python -m tests.repo.access`; a test compares the two.
Rights on Kafka are in [topics](topics.md).

A service without a role has no account of PostgreSQL. What roles mean:
[Secure PostgreSQL](../how-to/secure-postgresql.md).

A service that opens or seals texts of tenants is given the key store, others are not; only one
makes the key of a tenant that has none. Nodes (`trainer`) have no key store: each lease is given
[the keys of its work](../how-to/encryption.md#nodes-have-no-keys).
Views for readers are what [dashboards](../how-to/observe.md#use-and-money) show: the role
`{reader}` reads these, and nothing else.

| service | role of PostgreSQL | owns the schema | views for readers | key store | makes keys |
|---|---|---|---|---|---|
"""
OBJECTS_HEAD: Final = """
## Objects

Who may do what with the objects whose keys begin so; `*` is any tenant, `trainer` every node. What
is not here is refused. All may see which keys there are, and end an upload whose id they know. What
it means: [Secure S3](../how-to/secure-s3.md). Readers of a journal may read its segments in the
bucket of the [archive](../how-to/journal.md#archive), where no service writes or deletes.

| prefix | read | write | delete |
|---|---|---|---|
"""


def page() -> str:
    rows = "".join(f"{_row(service)}\n" for service in sorted(ACCESS))
    objects = "".join(f"{_object_row(row)}\n" for row in OBJECTS)
    return HEAD.format(reader=role_of(READER)) + rows + OBJECTS_HEAD + objects


def _object_row(row: ObjectAccess) -> str:
    cells = (", ".join(sorted(names)) or "–" for names in (row.reads, row.writes, row.deletes))
    return f"| {' | '.join((f'`{row.prefix}`', *cells))} |"


def _row(service: str) -> str:
    cells = (
        (f"`{role_of(service)}`", f"`{schema_of(service)}`") if ACCESS[service].rows else ("–", "–")
    )
    views = f"`{reports_of(service)}`" if service in REPORTS else "–"
    keys = "yes" if ACCESS[service].keys else "–"
    makes = "yes" if ACCESS[service].makes_keys else "–"
    return f"| {' | '.join((service, *cells, views, keys, makes))} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
