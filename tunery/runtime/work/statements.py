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
CREATE TABLE IF NOT EXISTS todos (
    kind text NOT NULL,
    id text NOT NULL,
    projection text NOT NULL,
    key text NOT NULL,
    tenant text NOT NULL,
    body bytea NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    attempts integer NOT NULL DEFAULT 0,
    due timestamptz NOT NULL DEFAULT '-infinity',
    lease text,
    failure text,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, id)
);
CREATE INDEX IF NOT EXISTS todos_due ON todos (kind, due, number);
CREATE TABLE IF NOT EXISTS outcomes (
    command_id text PRIMARY KEY,
    stream text NOT NULL,
    partition integer NOT NULL,
    "offset" bigint NOT NULL,
    at bigint NOT NULL,
    tenant text NOT NULL,
    key text NOT NULL,
    seq bigint NOT NULL,
    code text,
    message text,
    param text,
    repeated_of text,
    written_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS outcomes_written_at ON outcomes (written_at);
"""

ZERO: Final = """
INSERT INTO positions (projection, stream, partition, next_offset, position)
SELECT $1, stream, partition, 0, $4
FROM unnest($2::text[], $3::integer[]) AS place (stream, partition)
ON CONFLICT DO NOTHING
"""

ADVANCE: Final = """
UPDATE positions AS p SET next_offset = $5, position = $6
FROM projections AS v
WHERE v.name = $1 AND v.version = $7
  AND p.projection = $1 AND p.stream = $2 AND p.partition = $3 AND p.next_offset = $4
"""

TODO_PUT: Final = """
INSERT INTO todos (projection, kind, id, key, tenant, body)
SELECT $1, kind, id, key, tenant, body
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[])
    AS t (kind, id, key, tenant, body)
ON CONFLICT (kind, id) DO UPDATE
SET projection = excluded.projection, key = excluded.key, tenant = excluded.tenant,
    body = excluded.body, attempts = 0, due = '-infinity', lease = NULL, failure = NULL
"""

TODO_DONE: Final = """
DELETE FROM todos AS t USING unnest($1::text[], $2::text[]) AS d (kind, id)
WHERE t.kind = d.kind AND t.id = d.id
"""

OUTCOME_PUT: Final = """
INSERT INTO outcomes (command_id, stream, partition, "offset", at, tenant, key, seq,
                      code, message, param, repeated_of)
SELECT command_id, stream, partition, "offset", at, tenant, key, seq,
       code, message, param, repeated_of
FROM jsonb_populate_recordset(NULL::outcomes, $1::text::jsonb)
ON CONFLICT DO NOTHING
"""

OUTCOME_GET: Final = """
SELECT command_id, stream, partition, "offset", at, tenant, key, seq,
       code, message, param, repeated_of
FROM outcomes WHERE command_id = $1
"""

NOTIFY: Final = "SELECT pg_notify($1, notice) FROM unnest($2::text[]) AS notice"

# The lease is a column and no open transaction: an effect may take hours. SKIP LOCKED keeps two
# processes from waiting for each other; a projection that is still catching up gives no rows,
# because their ends may be in the part it has not read.
LEASE: Final = """
UPDATE todos AS t
SET lease = $4, attempts = t.attempts + 1, due = clock_timestamp() + $3 * interval '1 ms'
FROM (
    SELECT kind, id FROM todos AS d
    WHERE d.kind = $1 AND d.due <= clock_timestamp() AND NOT EXISTS (
        SELECT FROM positions AS p WHERE p.projection = d.projection AND NOT p.caught_up
    )
    ORDER BY d.due, d.number LIMIT $2 FOR UPDATE OF d SKIP LOCKED
) AS free
WHERE t.kind = free.kind AND t.id = free.id
RETURNING t.kind, t.id, t.key, t.tenant, t.attempts, t.body, t.failure, t.number
"""

RENEW: Final = """
UPDATE todos SET due = clock_timestamp() + $4 * interval '1 ms'
WHERE kind = $1 AND id = $2 AND lease = $3
"""

RELEASE: Final = """
UPDATE todos SET due = clock_timestamp() + $4 * interval '1 ms', lease = NULL,
    failure = coalesce($5, failure), attempts = attempts - $6
WHERE kind = $1 AND id = $2 AND lease = $3
"""

FINISH: Final = "DELETE FROM todos WHERE kind = $1 AND id = $2 AND lease = $3"

CAUGHT_UP: Final = """
UPDATE positions SET caught_up = $4
WHERE projection = $1 AND stream = $2 AND partition = $3 AND caught_up <> $4
"""

PRUNE: Final = "DELETE FROM outcomes WHERE written_at < now() - $1 * interval '1 ms'"
