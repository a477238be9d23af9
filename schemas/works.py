"""Works that placements of `pool` refer to: described once, and kept while their job is open."""

from schemas.envelope import Message
from schemas.training import WorkDescription


class DescribeWork(Message):
    """A job's work, before the first placement that refers to it."""

    tenant: str  # owner of the job
    description: WorkDescription  # the work and its id


class WorkKept(Message):
    """Placements of this job may refer to this work now; agents keep it."""

    tenant: str  # owner of the job
    description: WorkDescription  # the work and its id


class WorkForgotten(Message):
    """No placement refers to the works of this job any more."""

    job_id: str
