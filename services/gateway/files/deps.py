"""Dependencies of the routes of files, beside those of all routes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from fastapi import Depends, Request

from services.gateway.files.preview_tasks import Task
from services.gateway.web.deps import Deps


class Previews(Protocol):
    async def ask(self, task: Task) -> Mapping[str, Any]:
        """Run a task on uploaded rows; returns its answer's fields. Raises ApiError 400, 503."""


@dataclass(frozen=True)
class FileDeps(Deps):
    previews: Previews


async def _file_deps(request: Request) -> FileDeps:
    deps: FileDeps = request.app.state.deps
    return deps


WithFileDeps = Annotated[FileDeps, Depends(_file_deps)]
