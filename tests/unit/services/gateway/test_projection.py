"""Every stream that the gateway reads has its projection."""

import pytest

from schemas.envelope import Repeated
from services.gateway.app import VIEWS_PROJECTION
from services.gateway.projection import notify, project
from tests.unit.services.gateway.jobs.job_events import JOB, SUBMITTED
from tests.unit.services.gateway.view_rows import header


def test_events_of_every_stream_are_projected() -> None:
    repeated = Repeated(of="command-1")
    for stream in VIEWS_PROJECTION.streams:
        assert project(header(stream.name), repeated) == ()
    with pytest.raises(ValueError, match="meteor"):
        project(header("meteor"), repeated)


def test_followers_of_a_job_are_notified_of_its_events() -> None:
    assert notify(header("job"), SUBMITTED) == f"acme/{JOB}"
    assert notify(header("dataset"), SUBMITTED) is None
