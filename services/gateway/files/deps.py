"""Dependencies of the routes of files, besides those of all routes."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

from fastapi import Depends, Request

from services.gateway.files.domain.preview_tasks import Task
from services.gateway.web.deps import Deps


class Previews(Protocol):
    def admit(self, tenant: str, of_tenant_max: int) -> AbstractContextManager[Path]:
        """Count a request of a tenant until the end of the context. Raises ApiError 429, 503.

        Returns a folder for the files of its task, which goes with the context.
        """

    async def ask(self, task: Task, tenant: str, niceness: int) -> Mapping[str, Any]:
        """Run a task on uploaded rows; returns its answer's fields. Raises ApiError 400, 503."""


@dataclass(frozen=True)
class FileDeps(Deps):
    previews: Previews


async def _file_deps(request: Request) -> FileDeps:
    deps: FileDeps = request.app.state.deps
    return deps


WithFileDeps = Annotated[FileDeps, Depends(_file_deps)]
