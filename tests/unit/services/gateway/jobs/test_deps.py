"""Routes of jobs get the dependencies of the app that they are part of."""

from services.gateway.jobs.deps import WithJobDeps
from tests.unit.services.gateway.app_dependencies import received


async def test_a_route_of_jobs_gets_the_dependencies_of_its_app() -> None:
    deps = object()
    assert await received(WithJobDeps, deps) is deps
