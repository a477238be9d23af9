"""A job as a run of W&B's client in its offline mode: nothing is sent anywhere.

W&B's package is not among ours: the extra "mirrors" installs it.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tunery.mirrors.figures import parameters, step_figures, summary

PACKAGE: Final = "wandb"


class RunRefused(Exception):
    """W&B's package refuses the project or the settings of a run."""


def is_installed() -> bool:
    return find_spec(PACKAGE) is not None


class OfflineRun:
    """The run whose id is the job's. `wandb sync` uploads its folder, as the same run each time."""

    def __init__(
        self,
        folder: Path,
        project: str,
        name: str | None = None,
        entity: str | None = None,
        tags: Sequence[str] = (),
    ) -> None:
        """name: name of the run; None: the id of the job."""
        self._folder, self._project, self._name = folder, project, name
        self._entity, self._tags = entity, tuple(tags)
        self._run: Any = None
        self._destination = folder

    def begin(self, job: Mapping[str, Any]) -> int:
        """Write the run of a job anew: what an earlier call wrote of it is removed.

        Raises RunRefused, OSError for the folder.
        """
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        for earlier in (self._folder / PACKAGE).glob(f"offline-run-*-{job['id']}"):
            shutil.rmtree(earlier)
        self._folder.mkdir(parents=True, exist_ok=True)
        settings = wandb.Settings(
            console="off", silent=True, disable_git=True, disable_code=True, x_disable_stats=True
        )
        try:
            self._run = wandb.init(
                mode="offline",
                dir=str(self._folder),
                project=self._project,
                id=job["id"],
                name=self._name or job["id"],
                entity=self._entity,
                tags=self._tags,
                config=parameters(job),
                settings=settings,
            )
        except wandb.Error as error:
            raise RunRefused(f"W&B's package refused: {error}") from error
        self._destination = Path(self._run.dir).parent  # without `files`
        return 0

    def add(self, step: Mapping[str, Any]) -> None:
        self._run.log(step_figures(step), step=int(step["step"]))

    def end(self, job: Mapping[str, Any]) -> None:
        """Write the summary, and whether the job succeeded as the exit code of the run."""
        self._run.summary.update(summary(job))
        self._run.finish(exit_code=0 if job["status"] == "succeeded" else 1)
        self._run = None

    def close(self) -> None:
        if self._run is not None:
            self._run.finish(exit_code=1)

    @property
    def destination(self) -> str:
        return str(self._destination)
