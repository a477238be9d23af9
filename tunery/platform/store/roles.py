"""One role of PostgreSQL for each service that keeps rows, as SQL. Pure.

A role owns the schema of its service and all that is in it, and has no right on any other. The role
of readers reads the views of services that have some (`reports`), and nothing else. Whoever runs
the statements, an operator, becomes a member of each role, and so reads all schemas.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from schemas.access import KEEPS_ROWS, READER, REPORTS, schema_of
from tunery.platform.store.reports import reports_of
from tunery.platform.store.rows import name

PREFIX: Final = "tunery_"
ROLE: Final = """\
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN
        CREATE ROLE {quoted};
    ELSIF EXISTS (
        SELECT FROM pg_roles WHERE rolname = '{role}'
        AND (rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls)
    ) OR EXISTS (SELECT FROM pg_auth_members WHERE member = '{role}'::regrole) THEN
        RAISE EXCEPTION 'the role {role} exists and may do more than a service: drop it, or take '
            'its attributes and memberships away';
    END IF;
END $$"""
#: What an earlier version made as one role for all. Sequences of columns follow their tables.
REASSIGN: Final = """\
DO $$ DECLARE statement text; BEGIN
    FOR statement IN
        SELECT format('ALTER TABLE %I.%I OWNER TO %I', '{schema}', relname, '{role}')
        FROM pg_class WHERE relnamespace = '{schema}'::regnamespace
        AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND relowner <> '{role}'::regrole
        AND NOT EXISTS (
            SELECT FROM pg_depend WHERE objid = pg_class.oid AND relkind = 'S'
            AND classid = 'pg_class'::regclass AND deptype IN ('a', 'i')
        )
        UNION ALL
        SELECT format('ALTER ROUTINE %s OWNER TO %I', oid::regprocedure, '{role}')
        FROM pg_proc WHERE pronamespace = '{schema}'::regnamespace
        AND proowner <> '{role}'::regrole
    LOOP
        EXECUTE statement;
    END LOOP;
END $$"""
#: What may be read, also of views that are made later; and how much at once.
READS: Final = """\
CREATE SCHEMA IF NOT EXISTS {schema} AUTHORIZATION {owner};
ALTER SCHEMA {schema} OWNER TO {owner};
GRANT USAGE ON SCHEMA {schema} TO {reader};
GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {reader};
ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema} GRANT SELECT ON TABLES TO {reader}"""
READER_LIMITS: Final = """ALTER ROLE {reader} CONNECTION LIMIT 10;
ALTER ROLE {reader} SET default_transaction_read_only = on;
ALTER ROLE {reader} SET statement_timeout = '30s';
ALTER ROLE {reader} SET idle_in_transaction_session_timeout = '30s'"""
CONNECT: Final = """\
DO $$ BEGIN
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO {roles}', current_database());
END $$"""


def role_of(service: str) -> str:
    """The role of a service where no other name is given."""
    return f"{PREFIX}{service}"


def default_roles() -> dict[str, str]:
    """The roles of services, and that of readers, where no other names are given."""
    return {service: role_of(service) for service in (*KEEPS_ROWS, READER)}


def role_statements(roles: Mapping[str, str], passwords: Mapping[str, str]) -> Iterator[str]:
    """Statements that make roles, schemas and rights as they should be; they can be repeated.

    They are run in the database of the services, by its owner.

    roles: name of the role of each service in KEEPS_ROWS, and of READER
    passwords: password of each role, by the same keys; a role that is not there keeps its own

    Raises ValueError for a wrong name.
    """
    known = {service: name(roles[service]) for service in (*KEEPS_ROWS, READER)}
    for service, quoted in known.items():
        yield ROLE.format(role=roles[service], quoted=quoted)
        password = passwords.get(service)
        written = "" if password is None else f" PASSWORD '{password}'"
        yield f"ALTER ROLE {quoted} LOGIN{written}"
        yield f"GRANT {quoted} TO CURRENT_USER"
    yield CONNECT.format(roles=", ".join(known.values()))
    yield "REVOKE ALL ON SCHEMA public FROM PUBLIC"
    for service in KEEPS_ROWS:
        quoted, schema = known[service], schema_of(service)
        yield f"CREATE SCHEMA IF NOT EXISTS {name(schema)} AUTHORIZATION {quoted}"
        yield f"ALTER SCHEMA {name(schema)} OWNER TO {quoted}"
        yield REASSIGN.format(schema=schema, role=roles[service])
    for service in REPORTS:
        owned = {"schema": name(reports_of(service)), "owner": known[service]}
        yield from READS.format(**owned, reader=known[READER]).split(";\n")
    yield from READER_LIMITS.format(reader=known[READER]).split(";\n")
