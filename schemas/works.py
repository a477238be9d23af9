"""Works that placements of `pool` refer to: described once, and kept while their job is open."""

from schemas.envelope import Message
from schemas.training import WorkDescription


class DescribeWork(Message):
    """A job's work, before the first placement that refers to it.

    tenant: owner of the job.
    description: the work and its id.
    """

    tenant: str
    description: WorkDescription


class WorkKept(Message):
    """Placements of this job may refer to this work now; agents keep it.

    tenant: owner of the job.
    description: the work and its id.
    """

    tenant: str
    description: WorkDescription


class WorkForgotten(Message):
    """No placement refers to the works of this job any more.

    job_id: the job.
    """

    job_id: str
