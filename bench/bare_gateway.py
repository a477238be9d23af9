"""The bare handler that the gateway is compared with: FastAPI over the same SQL.

    DSN=… PORT=… python -m bench.bare_gateway

A read looks up the key and the job, as the gateway does; a submission looks up the key and commits
one row, where the gateway waits for a decision on the log.
"""

import hashlib
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final
from uuid import uuid4

import asyncpg
import uvicorn
from fastapi import Body, FastAPI, Header, HTTPException

from schemas.access import schema_of
from services.gateway.views.table import Table
from services.gateway.views.tables.accounts import KEYS
from services.gateway.views.tables.jobs import JOBS

POOL: Final = 8


def first_row(table: Table[Any], condition: str) -> str:
    """The query for the first row that meets a condition, in the order of the gateway's table."""
    return (
        f"SELECT * FROM {schema_of('gateway')}.{table.name} WHERE {condition} "  # noqa: S608  # all is ours
        f"ORDER BY {table.order} ASC, id ASC LIMIT 1"
    )


KEY: Final = first_row(KEYS, "sha256 = $1")
JOB: Final = first_row(JOBS, "tenant = $1 AND id = $2")
TABLE: Final = "CREATE TABLE IF NOT EXISTS public.bare (id text PRIMARY KEY, body text)"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with asyncpg.create_pool(os.environ["DSN"], min_size=POOL, max_size=POOL) as pool:
        await pool.execute(TABLE)
        app.state.pool = pool
        yield


app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None)


async def tenant_of(authorization: str) -> str:
    """The tenant of an API key. Raises HTTPException 401 for an unknown key."""
    sha256 = hashlib.sha256(authorization.removeprefix("Bearer ").encode()).hexdigest()
    row = await app.state.pool.fetchrow(KEY, sha256)
    if row is None:
        raise HTTPException(401)
    return str(row["tenant"])


@app.get("/v1/fine_tuning/jobs/{job_id}")
async def read(job_id: str, authorization: Annotated[str, Header()]) -> dict[str, Any]:
    """The row of a job. Raises HTTPException 404 when there is none."""
    row = await app.state.pool.fetchrow(JOB, await tenant_of(authorization), job_id)
    if row is None:
        raise HTTPException(404)
    return dict(row)


@app.post("/v1/fine_tuning/jobs")
async def submit(
    body: Annotated[dict[str, Any], Body()], authorization: Annotated[str, Header()]
) -> dict[str, Any]:
    await tenant_of(authorization)
    job_id = uuid4().hex
    await app.state.pool.execute(
        "INSERT INTO public.bare VALUES ($1, $2)", job_id, json.dumps(body)
    )
    return {"id": job_id}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
