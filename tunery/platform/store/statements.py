"""The tables that every service's schema has, and the statements on them."""

from typing import Final

TABLES: Final = """
CREATE TABLE IF NOT EXISTS projections (
    name text PRIMARY KEY,
    version integer NOT NULL
);
CREATE TABLE IF NOT EXISTS positions (
    projection text NOT NULL,
    stream text NOT NULL,
    partition integer NOT NULL,
    next_offset bigint NOT NULL,
    position text NOT NULL,
    caught_up boolean NOT NULL DEFAULT false,
    PRIMARY KEY (projection, stream, partition)
);
ALTER TABLE positions ADD COLUMN IF NOT EXISTS stopped text;
CREATE TABLE IF NOT EXISTS todos (
    kind text NOT NULL,
    id text NOT NULL,
    projection text NOT NULL,
    key text NOT NULL,
    tenant text NOT NULL,
    body bytea NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    tries integer NOT NULL DEFAULT 0,
    due timestamptz NOT NULL DEFAULT '-infinity',
    row_lease text,
    failure text,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, id)
);
ALTER TABLE todos
    ADD COLUMN IF NOT EXISTS correlation text,
    ADD COLUMN IF NOT EXISTS traceparent text;
CREATE INDEX IF NOT EXISTS todos_turn ON todos (kind, tenant, due, number);
CREATE INDEX IF NOT EXISTS todos_due ON todos (kind, due, number);
CREATE INDEX IF NOT EXISTS todos_leased ON todos (kind, tenant) WHERE row_lease IS NOT NULL;
CREATE TABLE IF NOT EXISTS command_results (
    command_id text PRIMARY KEY,
    stream text NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    at bigint NOT NULL,
    tenant text NOT NULL,
    key text NOT NULL,
    seq bigint NOT NULL,
    code text,
    reason jsonb,
    param text,
    repeated_of text,
    written_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS command_results_written_at ON command_results (written_at);
CREATE TABLE IF NOT EXISTS digests (
    stream text NOT NULL,
    partition integer NOT NULL,
    journal_offset bigint NOT NULL,
    state_hash text NOT NULL,
    PRIMARY KEY (stream, partition)
);
"""

#: columns of each table without which an insert may fail: NOT NULL without a default, or in a CHECK
#: constraint
NEEDED_COLUMNS: Final = """
SELECT t AS table, array(
    SELECT a.attname::text FROM pg_attribute AS a
    WHERE a.attrelid = to_regclass(t) AND a.attnum > 0 AND NOT a.attisdropped
      AND ((a.attnotnull AND NOT a.atthasdef AND a.attidentity = '')
           OR EXISTS (SELECT FROM pg_constraint AS c
                      WHERE c.conrelid = a.attrelid AND c.contype = 'c'
                        AND a.attnum = ANY(c.conkey)))
) AS columns
FROM unnest($1::text[]) AS t
"""

ZERO: Final = """
INSERT INTO positions (projection, stream, partition, next_offset, position)
SELECT $1, stream, partition, 0, $4
FROM unnest($2::text[], $3::integer[]) AS p (stream, partition)
ON CONFLICT DO NOTHING
"""

#: A batch in one round trip, in its own transaction: a position that has moved meanwhile makes
#: all of it void. Each statement takes its rows as one JSON text.
COMMIT_FUNCTION: Final = """
CREATE OR REPLACE FUNCTION commit_batch(
    of_projection text, of_version integer, of_stream text, of_partition integer,
    expected bigint, following bigint, new_position text, statements text[], payloads text[]
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE positions AS p SET next_offset = following, position = new_position
    FROM projections AS v
    WHERE v.name = of_projection AND v.version = of_version
      AND p.projection = of_projection AND p.stream = of_stream AND p.partition = of_partition
      AND p.next_offset = expected;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    FOR step IN 1 .. cardinality(statements) LOOP
        EXECUTE statements[step] USING payloads[step];
    END LOOP;
    RETURN true;
END
$$
"""

COMMIT: Final = "SELECT commit_batch($1, $2, $3, $4, $5, $6, $7, $8, $9)"

TODO_PUT: Final = """
INSERT INTO todos (projection, kind, id, key, tenant, body, correlation, traceparent)
SELECT projection, kind, id, key, tenant, body, correlation, traceparent
FROM jsonb_to_recordset($1::jsonb)
    AS t (projection text, kind text, id text, key text, tenant text, body bytea,
          correlation text, traceparent text)
ON CONFLICT (kind, id) DO UPDATE
SET projection = excluded.projection, key = excluded.key, tenant = excluded.tenant,
    body = excluded.body, correlation = excluded.correlation,
    traceparent = excluded.traceparent, tries = 0, due = '-infinity', row_lease = NULL,
    failure = NULL
"""

TODO_DONE: Final = """
DELETE FROM todos AS t USING jsonb_to_recordset($1::jsonb) AS d (kind text, id text)
WHERE t.kind = d.kind AND t.id = d.id
"""

RESULT_PUT: Final = """
INSERT INTO command_results (command_id, stream, partition, "offset", at, tenant, key, seq,
                      code, reason, param, repeated_of)
SELECT command_id, stream, partition, "offset", at, tenant, key, seq,
       code, reason, param, repeated_of
FROM jsonb_populate_recordset(NULL::command_results, $1::jsonb)
ON CONFLICT DO NOTHING
"""

NOTIFY: Final = """
SELECT pg_notify(channel, notice)
FROM jsonb_to_recordset($1::jsonb) AS n (channel text, notice text)
"""

RESULT_GET: Final = """
SELECT command_id, stream, partition, "offset", at, tenant, key, seq,
       code, reason, param, repeated_of
FROM command_results WHERE command_id = $1
"""

# A row lease is a column and no open transaction: an effect may take hours. SKIP LOCKED keeps two
# processes from waiting for each other; a projection that is still catching up gives no rows,
# because their ends may be in the part it has not read. Tenants take turns: a row's turn is how
# many rows its tenant has leased, plus its position among the tenant's rows. The indexes are walked
# from tenant to tenant, so a long queue of one costs nothing; $5 more rows of each are read, in
# place of those that other processes are leasing right now. $6 bounds the leased rows of a tenant.
# Differences of moments are compared where another column finds the row: without statistics of the
# table, which has no rows until a month ends, the planner walks all rows of `due` for each of them.
#: The first rows of tenants that have none leased, as far as they are among the $5 oldest: their
#: turn comes before all others. Where a month ends there are 100,000 tenants with one row each, and
#: `LEASE_ROWS` looks at all of them.
LEASE_FIRST_ROWS: Final = """
WITH oldest AS MATERIALIZED (
    SELECT d.id, d.tenant, d.due, d.number FROM todos AS d
    WHERE kind = $1 AND due <= statement_timestamp() AND NOT EXISTS (
        SELECT FROM positions AS p WHERE p.projection = d.projection AND NOT p.caught_up
    )
    ORDER BY due, number LIMIT $5
), first AS (
    SELECT DISTINCT ON (tenant) id, due, number FROM oldest AS d
    WHERE NOT EXISTS (
        SELECT FROM todos AS t WHERE t.kind = $1 AND t.tenant = d.tenant
          AND row_lease IS NOT NULL AND t.due - statement_timestamp() > interval '0'
    )
    ORDER BY tenant, due, number
)
UPDATE todos AS t
SET row_lease = $4, tries = t.tries + 1, due = clock_timestamp() + $3 * interval '1 ms'
FROM (
    SELECT d.kind, d.id FROM first AS q JOIN todos AS d ON d.kind = $1 AND d.id = q.id
    WHERE d.due - statement_timestamp() <= interval '0'
    ORDER BY q.due, q.number LIMIT $2 FOR UPDATE OF d SKIP LOCKED
) AS free
WHERE t.kind = free.kind AND t.id = free.id
RETURNING t.kind, t.id, t.key, t.tenant, t.tries, t.body, t.failure, t.number, 1 AS turn,
    t.correlation, t.traceparent
"""

LEASE_ROWS: Final = """
WITH RECURSIVE tenants AS (
    (
        SELECT tenant FROM todos WHERE kind = $1 AND statement_timestamp() >= (
            SELECT due FROM todos WHERE kind = $1 ORDER BY due, number LIMIT 1
        )
        ORDER BY tenant LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT d.tenant FROM todos AS d WHERE d.kind = $1 AND d.tenant > t.tenant
        ORDER BY d.tenant LIMIT 1
    ) FROM tenants AS t WHERE t.tenant IS NOT NULL
), queue AS MATERIALIZED (
    SELECT d.id, busy.rows + d.sequence AS turn
    FROM tenants AS t
    CROSS JOIN LATERAL (
        SELECT id, due, number, row_number() OVER (ORDER BY due, number) AS sequence FROM todos AS d
        WHERE kind = $1 AND tenant = t.tenant AND due <= statement_timestamp() AND NOT EXISTS (
            SELECT FROM positions AS p WHERE p.projection = d.projection AND NOT p.caught_up
        )
        ORDER BY due, number LIMIT $2::bigint + $5
    ) AS d
    CROSS JOIN LATERAL (
        SELECT count(*) AS rows FROM todos
        WHERE kind = $1 AND tenant = t.tenant
          AND row_lease IS NOT NULL AND due > statement_timestamp()
    ) AS busy
    WHERE $6::bigint IS NULL OR busy.rows + d.sequence <= $6
    ORDER BY turn, d.due, d.number LIMIT $2::bigint + $5
)
UPDATE todos AS t
SET row_lease = $4, tries = t.tries + 1, due = clock_timestamp() + $3 * interval '1 ms'
FROM (
    SELECT d.kind, d.id, q.turn FROM queue AS q JOIN todos AS d ON d.kind = $1 AND d.id = q.id
    WHERE d.due - statement_timestamp() <= interval '0'
    ORDER BY q.turn, d.due, d.number LIMIT $2 FOR UPDATE OF d SKIP LOCKED
) AS free
WHERE t.kind = free.kind AND t.id = free.id
RETURNING t.kind, t.id, t.key, t.tenant, t.tries, t.body, t.failure, t.number, free.turn,
    t.correlation, t.traceparent
"""

RENEW: Final = """
UPDATE todos SET due = clock_timestamp() + $4 * interval '1 ms'
WHERE kind = $1 AND id = $2 AND row_lease = $3
"""

RELEASE: Final = """
UPDATE todos AS t SET due = clock_timestamp() + r.delay_ms * interval '1 ms', row_lease = NULL,
    failure = coalesce(r.failure, t.failure), tries = t.tries - r.uncounted
FROM json_to_recordset($1::text::json)
    AS r (kind text, id text, row_lease text, delay_ms bigint, failure text, uncounted integer)
WHERE t.kind = r.kind AND t.id = r.id AND t.row_lease = r.row_lease
"""

FINISH: Final = "DELETE FROM todos WHERE kind = $1 AND id = $2 AND row_lease = $3"

CAUGHT_UP: Final = """
UPDATE positions SET caught_up = $4, stopped = $5
WHERE projection = $1 AND stream = $2 AND partition = $3
    AND (caught_up, stopped) IS DISTINCT FROM ($4, $5::text)
"""

DIGEST_PUT: Final = """
INSERT INTO digests (stream, partition, journal_offset, state_hash) VALUES ($1, $2, $3, $4)
ON CONFLICT (stream, partition) DO UPDATE
SET journal_offset = excluded.journal_offset, state_hash = excluded.state_hash
"""

PRUNE: Final = "DELETE FROM command_results WHERE written_at < now() - $1 * interval '1 ms'"
