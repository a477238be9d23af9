"""The notifier's to-do lists: open deliveries, and jobs that go to MLflow; and what they need.

Secrets are looked up when a message is sent, not when it falls due: a rotation holds for what is
still open. The row of an endpoint stays when it is deleted, for deliveries that outlive it. A job
has a row until its run is complete, or was given up.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from schemas.account import DeliveryDue, DeliveryEnded, EndpointCreated, EndpointRotated
from schemas.envelope import Header
from schemas.erasure import JobsErased, TenantErasureBegun
from schemas.integrations import MirrorReported, TrackingServerRemoved, TrackingServerSet
from schemas.job import JobEnded, JobSubmitted
from schemas.units import Ms
from tunery.runtime.verbs import Change, Delete, Done, Todo, Upsert

DELIVER: Final = "deliver"
MIRROR: Final = "mirror"
MLFLOW: Final = "mlflow"
SECRETS: Final = "secrets"
SERVERS: Final = "servers"
MIRRORS: Final = "mirrors"
STEPS: Final = "steps"
NEWEST_STEPS: Final = "newest_steps"
DDL: Final = """
CREATE TABLE IF NOT EXISTS secrets (
  tenant text, id text, version integer NOT NULL, previous_until bigint,
  PRIMARY KEY (tenant, id)
);
CREATE TABLE IF NOT EXISTS servers (
  tenant text PRIMARY KEY, server jsonb NOT NULL
);
CREATE TABLE IF NOT EXISTS mirrors (
  tenant text, job_id text, created_at bigint, ended_at bigint, ended jsonb, is_reported boolean,
  PRIMARY KEY (tenant, job_id)
);
"""
#: tables that a reader of telemetry fills; rows go with their job
STEPS_DDL: Final = """
CREATE TABLE IF NOT EXISTS steps (
  tenant text, job_id text, block integer, step integer, document jsonb NOT NULL,
  PRIMARY KEY (tenant, job_id, block, step)
);
CREATE TABLE IF NOT EXISTS newest_steps (
  tenant text, job_id text, step integer NOT NULL,
  PRIMARY KEY (tenant, job_id)
);
"""


def project(header: Header, event: Any) -> tuple[Change, ...]:
    """Changes that follow from an event of `account` or `job`."""
    match event:
        case DeliveryDue():
            return (Todo(DELIVER, event.delivery_id, header.key, header.tenant, event),)
        case DeliveryEnded():
            return (Done(DELIVER, event.report.delivery_id),)
        case EndpointCreated():
            terms = event.terms
            return (_secret(header, terms.endpoint_id, terms.secret_version, None),)
        case EndpointRotated():
            until = event.previous_until
            return (_secret(header, event.endpoint_id, event.secret_version, until),)
        case TrackingServerSet(server=server):
            return (Upsert(SERVERS, {"tenant": header.key}, {"server": _json(server)}),)
        case TrackingServerRemoved() | TenantErasureBegun():
            return (Delete(SERVERS, {"tenant": header.key}),)
        case JobSubmitted() | JobEnded() | MirrorReported():
            return _of_job(header, event)
        case JobsErased():
            return _deleted({"tenant": header.key})
        case _:
            return ()


def _of_job(header: Header, event: JobSubmitted | JobEnded | MirrorReported) -> tuple[Change, ...]:
    """The row of a job that goes to MLflow, from its submission to the end of its run."""
    job, row = {"tenant": header.key, "job_id": event.job_id}, mirror_id(header.key, event.job_id)
    match event:
        case JobSubmitted():
            if not any(asked.kind == MLFLOW for asked in event.spec.integrations):
                return ()
            todo = Todo(MIRROR, row, header.key, header.tenant, event)
            return (Upsert(MIRRORS, job, {"created_at": header.at}), todo)
        case JobEnded():
            if MLFLOW not in event.integrations:
                return ()
            return (Upsert(MIRRORS, job, {"ended_at": header.at, "ended": _json(event)}),)
        case MirrorReported():
            if event.report.status == "failing":
                return (Upsert(MIRRORS, job, {"is_reported": True}),)
            return (Done(MIRROR, row), *_deleted(job))


def _deleted(rows: Mapping[str, str]) -> tuple[Delete, ...]:
    return tuple(Delete(table, rows) for table in (MIRRORS, STEPS, NEWEST_STEPS))


def mirror_id(tenant: str, job_id: str) -> str:
    """The id of the to-do row of a job that goes to MLflow."""
    return f"{tenant}/{job_id}"


def _json(message: Any) -> Any:
    return msgspec.to_builtins(message)


def _secret(header: Header, endpoint_id: str, version: int, previous_until: Ms | None) -> Upsert:
    key = {"tenant": header.tenant, "id": endpoint_id}
    return Upsert(SECRETS, key, {"version": version, "previous_until": previous_until})
