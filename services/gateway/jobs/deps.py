"""Dependencies of the routes of jobs, besides those of files and of all routes."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from services.gateway.files.deps import FileDeps
from services.gateway.jobs.feeds import Feeds
from services.gateway.jobs.past_jobs import PastJobs
from services.gateway.jobs.queue_reading import Queues
from services.gateway.jobs.score_endpoint import ScoreEndpoint


@dataclass(frozen=True)
class JobDeps(FileDeps):
    """Dependencies of the routes of jobs."""

    feeds: Feeds  # streams of job events
    queues: Queues  # why jobs wait, and until when
    past_jobs: PastJobs  # how long past jobs took
    scores: ScoreEndpoint  # models that grade samples


async def _job_deps(request: Request) -> JobDeps:
    deps: JobDeps = request.app.state.deps
    return deps


WithJobDeps = Annotated[JobDeps, Depends(_job_deps)]
