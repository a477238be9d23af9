"""Routes of files get the dependencies of the app that they are part of."""

from services.gateway.files.deps import WithFileDeps
from tests.unit.services.gateway.app_dependencies import received


async def test_a_route_of_files_gets_the_dependencies_of_its_app() -> None:
    deps = object()
    assert await received(WithFileDeps, deps) is deps
