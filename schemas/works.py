"""Descriptions of work, sent once to `pool` and kept while placements of the job refer to them."""

from schemas.envelope import Message
from schemas.training import WorkDescription


class DescribeWork(Message):
    """Describe a job's work, before the first placement that refers to it."""

    tenant: str  # owner of the job
    description: WorkDescription  # the work and its id


class WorkKept(Message):
    """The work is known: placements of the job may refer to it."""

    tenant: str  # owner of the job
    description: WorkDescription  # the work and its id


class WorkForgotten(Message):
    """No placement refers to the works of this job any more."""

    job_id: str
