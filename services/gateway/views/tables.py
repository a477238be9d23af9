"""The gateway's read models. All of them can be built again from the log.

Sealed fields stay sealed here (jsonb) and are opened on the way out.
Columns are nullable where another stream may be ahead of the one that fills them.
Lists are read by (tenant, order column), newest first: `place` is the order in one tenant's stream.
"""

from dataclasses import dataclass
from typing import Final

VERSION: Final = 9  # 9: reasons as codes, order of the queue
TELEMETRY_VERSION: Final = 2  # 2: log lines


@dataclass(frozen=True)
class Table:
    """`order`: the column that lists are sorted by, unique among the rows of one listing."""

    name: str
    order: str


TENANTS: Final = Table("tenants", "id")
LIMITS: Final = Table("limits", "id")
KEYS: Final = Table("keys", "place")
ENDPOINTS: Final = Table("endpoints", "place")
DELIVERIES: Final = Table("deliveries", "place")
FILES: Final = Table("files", "place")
DATASETS: Final = Table("datasets", "place")
UPLOADS: Final = Table("uploads", "place")
UPLOAD_PARTS: Final = Table("upload_parts", "place")
JOBS: Final = Table("jobs", "place")
JOB_HISTORY: Final = Table("job_history", "id")
JOB_EVENTS: Final = Table("job_events", "id")
CHECKPOINTS: Final = Table("checkpoints", "place")
PERMISSIONS: Final = Table("permissions", "place")
MODELS: Final = Table("models", "place")
BASES: Final = Table("bases", "id")
NODES: Final = Table("nodes", "id")
USAGE: Final = Table("usage", "id")
STEPS: Final = Table("steps", "id")
LINES: Final = Table("lines", "id")
VIEWS: Final = (
    TENANTS,
    LIMITS,
    KEYS,
    ENDPOINTS,
    DELIVERIES,
    FILES,
    DATASETS,
    UPLOADS,
    UPLOAD_PARTS,
    JOBS,
    JOB_HISTORY,
    JOB_EVENTS,
    CHECKPOINTS,
    PERMISSIONS,
    MODELS,
    BASES,
    NODES,
    USAGE,
)

DDL: Final = """
CREATE TABLE IF NOT EXISTS tenants (
  id text COLLATE "C" PRIMARY KEY, name jsonb, plan text, limits jsonb, price_version text,
  created_at bigint
);
CREATE TABLE IF NOT EXISTS limits (
  id text COLLATE "C" PRIMARY KEY, lane text, limits jsonb, price_version text
);
CREATE TABLE IF NOT EXISTS keys (
  tenant text, id text COLLATE "C", place bigint, name jsonb, sha256 text, hint text, scopes jsonb,
  expires_at bigint, created_at bigint, revoked_at bigint, models jsonb, spend_cap_micro bigint,
  requests_per_minute int, previous_sha256 text, previous_until bigint,
  PRIMARY KEY (tenant, id)
);
CREATE INDEX IF NOT EXISTS keys_sha256 ON keys (sha256);
CREATE INDEX IF NOT EXISTS keys_previous_sha256 ON keys (previous_sha256);
CREATE TABLE IF NOT EXISTS endpoints (
  tenant text, id text COLLATE "C", place bigint, name jsonb, url jsonb, event_types jsonb,
  secret_version int, created_at bigint, updated_at bigint,
  PRIMARY KEY (tenant, id)
);
CREATE TABLE IF NOT EXISTS deliveries (
  tenant text, id text COLLATE "C", place bigint, endpoint_id text, event_id text,
  event_type text, object_id text, event_at bigint, due_at bigint, ended_at bigint, outcome text,
  attempts int,
  status int,
  PRIMARY KEY (tenant, id)
);
CREATE INDEX IF NOT EXISTS deliveries_list ON deliveries (tenant, endpoint_id, place);
CREATE TABLE IF NOT EXISTS files (
  tenant text, id text COLLATE "C", place bigint, created_at bigint, purpose text, name jsonb,
  bytes bigint,
  sha256 text, blob text, status text, validation jsonb, failure text, expires_at bigint,
  dataset text, dataset_name jsonb, version int,
  PRIMARY KEY (tenant, id)
);
CREATE INDEX IF NOT EXISTS files_list ON files (tenant, place);
CREATE INDEX IF NOT EXISTS files_versions ON files (tenant, dataset, version)
  WHERE dataset IS NOT NULL;
CREATE TABLE IF NOT EXISTS datasets (
  tenant text, id text COLLATE "C", place bigint, name jsonb, version int, file_id text,
  updated_at bigint,
  PRIMARY KEY (tenant, id)
);
CREATE TABLE IF NOT EXISTS uploads (
  tenant text, id text COLLATE "C", place bigint, created_at bigint, expires_at bigint,
  purpose text, name jsonb, media_type text, bytes bigint, expires_after_ms bigint, status text,
  part_ids jsonb, file_id text,
  PRIMARY KEY (tenant, id)
);
CREATE TABLE IF NOT EXISTS upload_parts (
  tenant text, upload_id text, id text COLLATE "C", place bigint, created_at bigint, bytes bigint,
  sha256 text,
  PRIMARY KEY (tenant, upload_id, id)
);
CREATE TABLE IF NOT EXISTS jobs (
  tenant text, id text COLLATE "C", place bigint, command_id text, created_at bigint, spec jsonb,
  lane text,
  suffix jsonb, metadata jsonb, wanted text, phase text, reason jsonb, node_ids jsonb,
  queue_sequence bigint,
  attempt int, role text, started_at bigint, loaded_step int, total_steps int,
  trained_tokens bigint, hold jsonb, overage boolean, prepared jsonb, scores jsonb, gate jsonb,
  outcome text,
  failure jsonb, lineage jsonb, model_id text, finished_at bigint, billable_gpu_ms bigint,
  lost_gpu_ms bigint, released_gpu_ms bigint, result_file text,
  PRIMARY KEY (tenant, id)
);
CREATE INDEX IF NOT EXISTS jobs_list ON jobs (tenant, place);
CREATE INDEX IF NOT EXISTS jobs_command ON jobs (tenant, command_id);
CREATE INDEX IF NOT EXISTS jobs_phase ON jobs (phase, place);
CREATE TABLE IF NOT EXISTS job_history (
  tenant text, job_id text, id text COLLATE "C", at bigint, field text, value jsonb,
  PRIMARY KEY (tenant, job_id, id)
);
CREATE TABLE IF NOT EXISTS job_events (
  tenant text, job_id text, id text COLLATE "C", at bigint, level text, kind text, message text,
  sealed jsonb, data jsonb,
  PRIMARY KEY (tenant, job_id, id)
);
CREATE TABLE IF NOT EXISTS checkpoints (
  tenant text, job_id text, id text COLLATE "C", place bigint, created_at bigint, attempt int,
  step int,
  tokens bigint, trained_tokens bigint, manifest_sha256 text, bytes bigint, files jsonb,
  PRIMARY KEY (tenant, id)
);
CREATE INDEX IF NOT EXISTS checkpoints_list ON checkpoints (tenant, job_id, place);
CREATE TABLE IF NOT EXISTS permissions (
  tenant text, id text COLLATE "C", place bigint, created_at bigint, checkpoint_id text,
  project_id text,
  PRIMARY KEY (tenant, id)
);
CREATE INDEX IF NOT EXISTS permissions_given ON permissions (project_id, checkpoint_id);
CREATE TABLE IF NOT EXISTS models (
  tenant text, id text COLLATE "C", place bigint, created_at bigint, line text, lineage jsonb,
  files jsonb,
  stage text, stage_at bigint, quarantined boolean,
  PRIMARY KEY (tenant, id)
);
CREATE INDEX IF NOT EXISTS models_list ON models (tenant, place);
CREATE TABLE IF NOT EXISTS bases (
  id text COLLATE "C" PRIMARY KEY, created_at bigint, base jsonb
);
CREATE TABLE IF NOT EXISTS nodes (
  id text COLLATE "C" PRIMARY KEY, pool text, device text, slots int, memory_bytes bigint,
  state text
);
CREATE TABLE IF NOT EXISTS usage (
  tenant text, job_id text, id text COLLATE "C", at bigint, attempt int, role text,
  lane text, price_version text, hour bigint, kind text, used_gpu_ms bigint, billable_gpu_ms bigint,
  cause text,
  PRIMARY KEY (tenant, job_id, id)
);
"""

TELEMETRY_DDL: Final = """
CREATE TABLE IF NOT EXISTS steps (
  tenant text, job_id text, step int, id text COLLATE "C", at bigint, attempt int,
  total_steps int, loss double precision, accuracy double precision, valid_loss double precision,
  learning_rate double precision, tokens bigint, elapsed_ms bigint,
  PRIMARY KEY (tenant, job_id, step)
);
CREATE INDEX IF NOT EXISTS steps_list ON steps (tenant, job_id, id);
CREATE TABLE IF NOT EXISTS lines (
  tenant text, job_id text, id text COLLATE "C", at bigint, attempt int, level text, message text,
  PRIMARY KEY (tenant, job_id, id)
);
"""
